// SPDX-License-Identifier: Apache-2.0
// Builds tasks from the values that are needed: a task's graph has the terms of sums and the
// results that are placed in it, the values that other tasks read from it, and all their producers.
// So the readers of a value are built before the task that makes it.
#include "core/compile/stages/task_bodies.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/compile/rewrite.h"
#include "core/compile/simplify.h"
#include "core/compile/stages/added_nodes.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/leaves.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// A term of a sum over microbatches: `value`, and then the linear ops of `chain`, the last first.
struct Term {
  PartialSum sum;
  PieceTask task;
  PieceValue value;
  std::vector<NodeId> chain;
};

// The division of the loop over microbatches.
struct Division {
  const Loop& microbatches;
  const TaskPlacement& placement;
  const LayerPieces& pieces;

  const Graph& body() const { return microbatches.body(); }

  // Returns the type of a piece's part of a value that has the axis of the stack first.
  Type type_in_piece(const Type& type, int64_t p) const {
    Type result = type;
    result.axes[0].size = pieces.layers(p);
    return result;
  }

  bool is_stack(const Type& type) const {
    return type.rank() > 0 && type.axes[0].name == kLayersAxis;
  }
};

bool is_linear(const Node& node) {
  return node.inputs.size() == 1 && (node.op->linear_view || node.op->linear);
}

// Divides the terms of sums so that no stage sends a gradient to another one, such as the two
// gradients of a tied embedding: each stage sums its own.
class TermFinder {
 public:
  explicit TermFinder(const Division& division) : division_(division), body_(division.body()) {}

  std::vector<Term> find() {
    const Loop& loop = division_.microbatches;
    for (size_t i = 0; i < loop.carries(); ++i) {
      const ValueId term = term_of(i);
      if (division_.placement.is_stacked_gradient(term)) {
        add_stacked(i, term);
      } else {
        for (auto& [value, chain] : parts(term))
          terms_.push_back({{i}, task_of(value), {value}, std::move(chain)});
      }
    }
    return std::move(terms_);
  }

 private:
  struct Part {
    ValueId value;
    std::vector<NodeId> chain;
  };

  ValueId term_of(size_t carry) const {
    const Loop& loop = division_.microbatches;
    const NodeId sum = body_.value(loop.carry_out(carry)).producer;
    const bool adds =
        sum != kNone && (body_.node(sum).op == &kAddOp || body_.node(sum).op == &kAddLeavesOp);
    CHECK(adds && body_.node(sum).inputs[0] == loop.carry_in(carry),
          "carry {} of the loop over microbatches is not a sum", carry);
    return body_.node(sum).inputs[1];
  }

  void add_stacked(size_t carry, ValueId term) {
    const LayerPieces& pieces = division_.pieces;
    for (int64_t p = 0; p < pieces.pieces(); ++p) {
      const PieceTask task{division_.placement.weight_work(), p};
      terms_.push_back({{carry, p / pieces.stages()}, task, {term, p}, {}});
    }
  }

  PieceTask task_of(ValueId value) const {
    const TaskPlacement& placement = division_.placement;
    const NodeId producer = body_.value(value).producer;
    const PieceTask last{PipelineWork::kForward, placement.pieces() - 1};
    if (producer == kNone) return last;
    if (const LayerLoop* const loop = placement.loop(producer))
      return {loop->work, placement.last_piece(*loop)};
    return placement.task(producer).value_or(last);
  }

  int64_t stage_of(ValueId value) const { return division_.pieces.stage_of(task_of(value).piece); }

  std::vector<Part> parts(ValueId value) const {
    const NodeId producer = body_.value(value).producer;
    if (producer == kNone || division_.placement.loop(producer) != nullptr) return {{value, {}}};
    const Node& node = body_.node(producer);
    if (node.op == &kAddOp) {
      std::vector<Part> both = parts(node.inputs[0]);
      const std::vector<Part> others = parts(node.inputs[1]);
      both.insert(both.end(), others.begin(), others.end());
      const int64_t first = stage_of(both[0].value);
      const bool is_divided = std::ranges::any_of(
          both, [&](const Part& part) { return stage_of(part.value) != first; });
      if (is_divided) return both;
    } else if (is_linear(node)) {
      std::vector<Part> inner = parts(node.inputs[0]);
      if (inner.size() > 1) {
        for (Part& part : inner) part.chain.push_back(producer);
        return inner;
      }
    }
    return {{value, {}}};
  }

  const Division& division_;
  const Graph& body_;
  std::vector<Term> terms_;
};

// Builds the graph of one task.
class TaskBuilder {
 public:
  TaskBuilder(const Division& division, PieceTask task)
      : division_(division), body_(division.body()), task_(task) {
    const ValueId index = division.microbatches.index();
    made_[{index}] = graph_.add_input("index", InputKind::kLoop, body_.type(index));
  }

  void add_term(const Term& term) {
    ValueId value = get(term.value);
    for (const NodeId id : term.chain)
      value = copy(id, PieceValue::kWhole, [&](ValueId) { return value; })[0];
    const ValueId carry = division_.microbatches.carry_out(term.sum.carry);
    const auto [sum, is_new] = sums_.try_emplace(term.sum);
    if (is_new) {
      Type type = body_.type(carry);
      if (term.sum.chunk != PartialSum::kWhole)
        type = division_.type_in_piece(type, term.value.piece);
      sum->second = add_input(type, {.kind = TaskInput::Kind::kSum, .sum = term.sum});
    }
    Node add = body_.node(body_.value(carry).producer);
    add.inputs = {sum->second, value};
    const Type type = graph_.type(sum->second);
    sum->second = graph_.node(graph_.add_node(std::move(add), {type})).outputs[0];
  }

  void add_output(TaskOutput output) {
    graph_.add_output(fmt::format("output {}", outputs_.size()), get(output.value));
    outputs_.push_back(output);
  }

  TaskBody build() {
    for (const auto& [sum, value] : sums_) {
      graph_.add_output(fmt::format("output {}", outputs_.size()), value);
      outputs_.push_back({.kind = TaskOutput::Kind::kSum, .sum = sum});
    }
    return without_unused_inputs(dce(std::move(graph_)));
  }

 private:
  ValueId add_input(const Type& type, const TaskInput& input) {
    inputs_.push_back(input);
    return graph_.add_input(fmt::format("input {}", inputs_.size()), InputKind::kLoop, type);
  }

  // Returns the value in the task's graph: computed here, or an input.
  ValueId get(PieceValue key) {
    if (const auto found = made_.find(key); found != made_.end()) return found->second;
    const ValueId made = make(key);
    return made_.try_emplace(key, made).first->second;
  }

  ValueId make(PieceValue key) {
    const NodeId producer = body_.value(key.value).producer;
    if (producer == kNone) return input_of_loop(key.value);
    if (const LayerLoop* const loop = division_.placement.loop(producer))
      return output_of_layers(*loop, key);
    if (key.piece != PieceValue::kWhole) return stacked_gradient(producer, key);
    const std::optional<PieceTask> task = division_.placement.task(producer);
    if (task && *task != task_) return from_other_task(key);
    return copy_all(producer, key, [&](ValueId value) { return get({value}); });
  }

  ValueId input_of_loop(ValueId value) {
    const Loop& loop = division_.microbatches;
    const Type& type = body_.type(value);
    for (size_t i = 0; i < loop.slices(); ++i)
      if (loop.slice_in(i) == value)
        return named(add_input(type, {.kind = TaskInput::Kind::kSlice, .index = i}), value);
    for (size_t i = 0; i < loop.constants(); ++i)
      if (loop.constant_in(i) == value)
        return named(add_input(type, {.kind = TaskInput::Kind::kConstant, .index = i}), value);
    fail("a task of a pipeline reads {}, a sum over microbatches", body_.describe(value));
  }

  ValueId named(ValueId made, ValueId original) {
    graph_.value(made).name = body_.value(original).name;
    return made;
  }

  ValueId from_other_task(PieceValue key) {
    Type type = body_.type(key.value);
    if (key.piece != PieceValue::kWhole && is_stacked(key.value))
      type = division_.type_in_piece(type, key.piece);
    return named(add_input(type, {.kind = TaskInput::Kind::kValue, .value = key}), key.value);
  }

  // Returns whether a piece has layers of the value, not the whole.
  bool is_stacked(ValueId value) const {
    const Value& it = body_.value(value);
    const LayerLoop* const loop = division_.placement.loop(it.producer);
    if (loop == nullptr) return division_.placement.is_stacked_gradient(value);
    return it.result >= Loop(body_.node(loop->node)).carries();
  }

  ValueId output_of_layers(const LayerLoop& loop, PieceValue key) {
    const TaskPlacement& placement = division_.placement;
    if (key.piece == PieceValue::kWhole) {
      if (is_stacked(key.value)) return all_layers(key.value);
      return get({key.value, placement.last_piece(loop)});
    }
    if (placement.task_of_loop(loop, key.piece) != task_) return from_other_task(key);
    add_layers(loop, key.piece);
    return made_.at(key);
  }

  ValueId all_layers(ValueId value) {
    std::vector<ValueId> parts;
    for (int64_t p = 0; p < division_.pieces.pieces(); ++p) parts.push_back(get({value, p}));
    return AddedNodes(graph_, body_.node(body_.value(value).producer)).joined(std::move(parts));
  }

  // Adds the loop over the layers of one piece.
  void add_layers(const LayerLoop& layers, int64_t p) {
    Node node = body_.node(layers.node);
    const Loop loop(body_.node(layers.node));
    const std::optional<int64_t> previous = division_.placement.previous_piece(layers, p);
    node.inputs.clear();
    for (size_t i = 0; i < loop.carries(); ++i)
      node.inputs.push_back(previous ? get({loop.last(i), *previous}) : get({loop.initial(i)}));
    for (size_t i = 0; i < loop.slices(); ++i)
      node.inputs.push_back(rows(layers, loop.stacked(i), p));
    for (size_t i = 0; i < loop.constants(); ++i) node.inputs.push_back(get({loop.constant(i)}));
    node.attributes.set(key::kCount, division_.pieces.layers(p));
    node.attributes.set(key::kFirst, division_.pieces.first_layer(p));
    std::vector<SharedType> types;
    for (size_t i = 0; i < loop.outputs(); ++i) {
      const Type& type = body_.type(loop.output(i));
      types.push_back(i < loop.carries() ? type : division_.type_in_piece(type, p));
    }
    const std::vector<ValueId> outputs = add(std::move(node), types);
    for (size_t i = 0; i < outputs.size(); ++i) {
      named(outputs[i], loop.output(i));
      made_[{loop.output(i), p}] = outputs[i];
    }
  }

  // Returns the layers of a piece of a stacked operand of the loop `reader`.
  ValueId rows(const LayerLoop& reader, ValueId stack, int64_t p) {
    if (is_stacked(stack)) return get({stack, p});
    const NodeId producer = body_.value(stack).producer;
    const Node& like = body_.node(reader.node);
    if (producer != kNone && is_stage_gather(body_.node(producer)))
      return rows_of_shard(like, body_.node(producer).inputs[0], p);
    const ValueId whole = get({stack});
    return AddedNodes(graph_, like)
        .rows(whole, division_.pieces.first_layer(p), division_.pieces.layers(p));
  }

  // Returns the layers of a piece from its stage's shard.
  ValueId rows_of_shard(const Node& like, ValueId shard, int64_t p) {
    const ValueId held = get({shard});
    return AddedNodes(graph_, like)
        .rows(held, division_.pieces.first_row(p), division_.pieces.layers(p));
  }

  // Adds an op on the gradients of stacked weights, for the layers of one piece.
  ValueId stacked_gradient(NodeId id, PieceValue key) {
    const PieceTask task{division_.placement.weight_work(), key.piece};
    if (task != task_) return from_other_task(key);
    const Node& node = body_.node(id);
    if (is_stage_slice(node)) return get({node.inputs[0], key.piece});
    return copy_all(id, key, [&](ValueId value) {
      if (is_stacked(value)) return get({value, key.piece});
      if (!division_.is_stack(body_.type(value))) return get({value});
      return rows_of_shard(node, value, key.piece);
    });
  }

  // Copies a node with other operands; all its outputs are made.
  template <typename Operand>
  ValueId copy_all(NodeId id, PieceValue key, const Operand& operand) {
    const std::vector<ValueId> outputs = copy(id, key.piece, operand);
    for (size_t i = 0; i < outputs.size(); ++i)
      made_[{body_.node(id).outputs[i], key.piece}] = outputs[i];
    return made_.at(key);
  }

  template <typename Operand>
  std::vector<ValueId> copy(NodeId id, int64_t piece, const Operand& operand) {
    Node node = body_.node(id);
    for (ValueId& value : node.inputs) value = operand(value);
    std::vector<SharedType> types = output_types(body_, body_.node(id));
    if (piece != PieceValue::kWhole)
      for (SharedType& type : types) type = division_.type_in_piece(*type, piece);
    std::vector<ValueId> outputs = add(std::move(node), types);
    for (size_t i = 0; i < outputs.size(); ++i) named(outputs[i], body_.node(id).outputs[i]);
    return outputs;
  }

  std::vector<ValueId> add(Node node, const std::vector<SharedType>& types) {
    return graph_.node(graph_.add_node(std::move(node), types)).outputs;
  }

  TaskBody without_unused_inputs(const Graph& graph) {
    const Consumers readers(graph);
    std::set<ValueId> results;
    for (const GraphOutput& output : graph.outputs()) results.insert(output.value);
    TaskBody task;
    Rewriter rewriter(graph);
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const GraphInput& input = graph.inputs()[i];
      if (i > 0 && readers[input.value].empty() && !results.contains(input.value)) continue;
      rewriter.copy_input(input);
      if (i > 0) task.inputs.push_back(inputs_[i - 1]);
    }
    for (const NodeId id : graph.nodes().ids()) rewriter.copy_node(id);
    rewriter.copy_outputs();
    task.graph = std::move(rewriter.to());
    task.outputs = std::move(outputs_);
    return task;
  }

  const Division& division_;
  const Graph& body_;
  PieceTask task_;
  Graph graph_;
  std::vector<TaskInput> inputs_;
  std::vector<TaskOutput> outputs_;
  std::map<PieceValue, ValueId> made_;
  std::map<PartialSum, ValueId> sums_;
};

// Returns the task that makes a value which others read.
PieceTask maker_of(const Division& division, PieceValue key) {
  const NodeId producer = division.body().value(key.value).producer;
  const TaskPlacement& placement = division.placement;
  if (const LayerLoop* const loop = placement.loop(producer))
    return placement.task_of_loop(*loop, key.piece);
  if (key.piece != PieceValue::kWhole) return {placement.weight_work(), key.piece};
  const auto task = placement.task(producer);
  CHECK(task.has_value(), "a value that another task reads has a task");
  return *task;
}

// Returns the tasks so that each comes after those that read its values: backward passes before
// forward passes, weights before inputs.
std::vector<PieceTask> readers_first(const TaskPlacement& placement) {
  using enum PipelineWork;
  std::vector<PieceTask> tasks;
  for (const PipelineWork work : {kBackwardWeight, kBackwardInput, kBackward, kForward}) {
    const bool exists =
        std::ranges::find(placement.loops(), work, &LayerLoop::work) != placement.loops().end();
    for (int64_t i = 0; exists && i < placement.pieces(); ++i)
      tasks.push_back({work, work == kForward ? placement.pieces() - 1 - i : i});
  }
  return tasks;
}

}  // namespace

TaskBodies make_task_bodies(const Loop& microbatches, const TaskPlacement& placement,
                            const LayerPieces& pieces) {
  const Division division{microbatches, placement, pieces};
  const std::vector<Term> terms = TermFinder(division).find();
  TaskBodies made;
  std::map<PieceTask, std::set<PieceValue>> wanted;
  std::vector<std::set<int64_t>> stages_of_sums(microbatches.carries());
  for (const Term& term : terms)
    if (term.sum.chunk == PartialSum::kWhole)
      stages_of_sums[term.sum.carry].insert(pieces.stage_of(term.task.piece));
  for (const auto& each : stages_of_sums)
    made.stages_of_sums.emplace_back(each.begin(), each.end());

  std::map<PieceTask, std::vector<TaskOutput>> results;
  const PieceTask last{PipelineWork::kForward, placement.pieces() - 1};
  for (size_t k = 0; k < microbatches.results(); ++k) {
    const ValueId value = microbatches.slice_out(k);
    const NodeId producer = microbatches.body().value(value).producer;
    const auto task = producer == kNone ? std::nullopt : placement.task(producer);
    results[task.value_or(last)].push_back(
        {.kind = TaskOutput::Kind::kResult, .index = k, .value = {value}});
    made.stage_of_results.push_back(pieces.stage_of(task.value_or(last).piece));
  }

  for (const PieceTask& task : readers_first(placement)) {
    TaskBuilder builder(division, task);
    for (const Term& term : terms)
      if (term.task == task) builder.add_term(term);
    for (const TaskOutput& result : results[task]) builder.add_output(result);
    for (const PieceValue& value : wanted[task]) {
      builder.add_output({.value = value});
      made.makers.emplace(value, task);
    }
    TaskBody body = builder.build();
    for (const TaskInput& input : body.inputs) {
      if (input.kind != TaskInput::Kind::kValue) continue;
      wanted[maker_of(division, input.value)].insert(input.value);
    }
    made.bodies.emplace(task, std::move(body));
  }
  return made;
}

}  // namespace tessera
