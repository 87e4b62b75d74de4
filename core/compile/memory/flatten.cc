// SPDX-License-Identifier: Apache-2.0
// Flattening (flat_program.h). In: the lowered graph of one device, and the scratch bytes of its
// kernels. Out: its launches in order, and buffers. It walks the graph once and unrolls loops and
// pipelines; views, slices of stacks and stacked results become parts of buffers, with a copy where
// that is impossible. Cost: linear in the launches and operands of the unrolled step; the facts of
// a node are computed once, not in each iteration.
#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "core/compile/memory/flat_program.h"
#include "core/compile/memory/step_program.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/pipeline.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"

namespace tessera {
namespace {

std::vector<std::string> axes_without_units(const Type& type) {
  std::vector<std::string> names;
  for (const Axis& axis : type.axes)
    if (axis.size != 1) names.push_back(axis.name);
  return names;
}

std::optional<int64_t> slice_offset(const Type& whole, const Node& node) {
  int64_t inner = dtype_bytes(whole.dtype);
  const int64_t position = whole.find(node.attributes.get(key::kAxis));
  for (int64_t i = 0; i < whole.rank(); ++i) {
    const int64_t size = whole.axes[static_cast<size_t>(i)].size;
    if (i < position && size != 1) return std::nullopt;
    if (i > position) inner *= size;
  }
  return node.attributes.get(key::kBegin) * inner;
}

// Adds to `helpers` a node that copies a value of this type.
NodeId copy_node(Graph& helpers, const Type& type) {
  for (const NodeId id : helpers.nodes().ids()) {
    const Node& node = helpers.node(id);
    if (node.op == &kCopyOp && helpers.type(node.outputs[0]) == type) return id;
  }
  const std::string name = fmt::format("copied {}", helpers.inputs().size());
  Node node;
  node.op = &kCopyOp;
  node.inputs = {helpers.add_input(name, InputKind::kLoop, type)};
  return helpers.add_node(std::move(node), {type});
}

// Adds a node that computes the indices 0, 1, … of a loop.
NodeId index_node(Graph& helpers, const std::string& axis, int64_t count) {
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope scope(helpers, mesh, rules);
  return helpers.value(iota(Axis{.name = axis, .size = count, .split = {}}).id()).producer;
}

// Returns whether each value is read only by loops, slice by slice.
ValueFlags find_sliced(const Graph& graph) {
  ValueFlags sliced(graph.values().size(), true);
  const auto whole = [&](ValueId value) { sliced[value] = false; };
  for (const Node& node : graph.nodes()) {
    if (is_repeat(node)) {
      const Loop loop(node);
      for (size_t i = 0; i < loop.carries(); ++i) whole(loop.initial(i));
      for (size_t i = 0; i < loop.constants(); ++i) whole(loop.constant(i));
    } else {
      for (const ValueId value : node.inputs) whole(value);
    }
  }
  for (const GraphOutput& output : graph.outputs()) whole(output.value);
  return sliced;
}

class Flattener {
 public:
  Flattener(std::shared_ptr<const Graph> graph, const KernelFacts& facts) : facts_(facts) {
    program_.graph = std::move(graph);
    program_.helpers = std::make_shared<Graph>();
  }

  FlatProgram flatten() {
    const Graph& graph = *program_.graph;
    IndexedVector<ValueId, FlatValue> values(graph.values().size());
    for (const GraphInput& input : graph.inputs()) {
      const FlatValue value = new_value(graph.type(input.value).bytes());
      FlatBuffer& buffer = program_.buffers[value.buffer];
      buffer.is_input = true;
      buffer.persistent = persists(input.kind);
      values[input.value] = value;
      program_.inputs.push_back(value);
    }
    run(graph, values);
    for (const GraphOutput& output : graph.outputs())
      program_.outputs.push_back(values[output.value]);
    shorten_parents();
    return std::move(program_);
  }

 private:
  using Values = IndexedVector<ValueId, FlatValue>;

  // The kind of each node of a graph, found once for all iterations of a loop or pipeline.
  struct FlatNode {
    enum class Kind { kLoop, kPipeline, kView, kLaunch } kind = Kind::kLaunch;
    int64_t offset = 0;  // kView.
    FlatNodeId id = {};  // kLaunch.
    int64_t scratch = 0;
  };
  struct FlatGraph {
    IndexedVector<NodeId, FlatNode> nodes;
    IndexedVector<ValueId, int64_t> bytes;
  };

  const FlatGraph& flat(const Graph& graph) {
    const auto [found, is_new] = flat_.try_emplace(&graph);
    if (!is_new) return found->second;
    FlatGraph& made = found->second;
    for (const Value& value : graph.values()) made.bytes.push_back(value.type->bytes());
    for (const Node& node : graph.nodes()) made.nodes.push_back(flat_node(graph, node));
    return made;
  }

  FlatNode flat_node(const Graph& graph, const Node& node) {
    using enum FlatNode::Kind;
    if (is_repeat(node)) return {.kind = kLoop};
    if (is_pipeline(node)) return {.kind = kPipeline};
    if (const std::optional<int64_t> offset = view_offset(graph, node))
      return {.kind = kView, .offset = *offset};
    return {.kind = kLaunch,
            .id = program_.nodes.push_back(&node),
            .scratch = scratch_bytes(graph, node)};
  }

  int64_t scratch_bytes(const Graph& graph, const Node& node) const {
    return facts_.scratch_bytes ? facts_.scratch_bytes(graph, node) : 0;
  }

  // Makes each part refer to the buffer that contains it, not to another part: later passes look it
  // up for each operand of each launch.
  void shorten_parents() {
    for (FlatBuffer& buffer : program_.buffers) {
      if (buffer.parent == kNone) continue;
      const FlatValue root = program_.root(
          {.buffer = buffer.parent, .offset = buffer.parent_offset, .bytes = buffer.bytes});
      buffer.parent = root.buffer;
      buffer.parent_offset = root.offset;
    }
    for (FlatLaunch& launch : program_.launches)
      for (FlatValue& value : launch.inputs) value = program_.root(value);
  }

  FlatValue new_value(int64_t bytes) {
    return {.buffer = program_.buffers.push_back({.bytes = bytes}), .bytes = bytes};
  }

  void run(const Graph& graph, Values& values) {
    const FlatGraph& flat = this->flat(graph);
    for (const NodeId id : graph.nodes().ids()) {
      const Node& node = graph.node(id);
      switch (flat.nodes[id].kind) {
        case FlatNode::Kind::kLoop:
          run_loop(graph, node, values);
          break;
        case FlatNode::Kind::kPipeline:
          run_pipeline(node, values);
          break;
        case FlatNode::Kind::kView: {
          FlatValue view = values[node.inputs[0]];
          view.offset += flat.nodes[id].offset;
          view.bytes = flat.bytes[node.outputs[0]];
          values[node.outputs[0]] = view;
          break;
        }
        case FlatNode::Kind::kLaunch:
          launch(graph, id, flat, values);
      }
    }
  }

  void launch(const Graph& graph, NodeId id, const FlatGraph& flat, Values& values) {
    const Node& node = graph.node(id);
    FlatLaunch launch{.graph = &graph,
                      .node = id,
                      .flat_node = flat.nodes[id].id,
                      .inputs = program_.values.add(node.inputs.size()),
                      .outputs = program_.values.add(node.outputs.size())};
    for (size_t i = 0; i < node.inputs.size(); ++i) launch.inputs[i] = values[node.inputs[i]];
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId value = node.outputs[i];
      launch.outputs[i] = values[value] = new_value(flat.bytes[value]);
    }
    append(launch, flat.nodes[id].scratch);
  }

  void append(FlatLaunch launch, int64_t scratch) {
    if (scratch > 0) launch.scratch = new_value(scratch).buffer;
    launch.task = task_;
    program_.launches.push_back(launch);
  }

  FlatValue part(FlatValue whole, int64_t number, int64_t bytes) const {
    if (whole.stack != kNone) return stacks_[whole.stack][static_cast<size_t>(number)];
    return {.buffer = whole.buffer, .offset = whole.offset + number * bytes, .bytes = bytes};
  }

  // Returns memory for a stacked result of a loop: one buffer, or slices if only loops read it.
  FlatValue new_result(const Graph& graph, ValueId result, int64_t count, int64_t bytes) {
    const auto [sliced, added] = sliced_.try_emplace(&graph);
    if (added) sliced->second = find_sliced(graph);
    if (!sliced->second[result]) return new_value(count * bytes);
    return {.stack = stacks_.push_back(std::vector<FlatValue>(static_cast<size_t>(count)))};
  }

  void run_loop(const Graph& graph, const Node& node, Values& values) {
    const Loop loop(node);
    const Graph& body = loop.body();
    const auto outer = [&](ValueId value) -> FlatValue& { return values[value]; };
    Values inner(body.values().size());
    const auto in = [&](ValueId value) -> FlatValue& { return inner[value]; };
    const auto bytes = [&](ValueId value) { return body.type(value).bytes(); };

    std::vector<FlatValue> carries;
    for (size_t i = 0; i < loop.carries(); ++i) carries.push_back(outer(loop.initial(i)));
    for (size_t k = 0; k < loop.results(); ++k)
      outer(loop.result(k)) =
          new_result(graph, loop.result(k), loop.count(), bytes(loop.slice_out(k)));
    for (size_t i = 0; i < loop.constants(); ++i) in(loop.constant_in(i)) = outer(loop.constant(i));
    const FlatValue indices =
        reads_index(body) ? loop_indices(loop.axis(), loop.first() + loop.count()) : FlatValue();
    for (int64_t step = 0; step < loop.count(); ++step) {
      const int64_t iteration = loop.iteration(step);
      in(loop.index()) = part(indices, loop.first() + iteration, bytes(loop.index()));
      for (size_t i = 0; i < loop.carries(); ++i) in(loop.carry_in(i)) = carries[i];
      for (size_t i = 0; i < loop.slices(); ++i)
        in(loop.slice_in(i)) = part(outer(loop.stacked(i)), iteration, bytes(loop.slice_in(i)));
      run(body, inner);
      for (size_t k = 0; k < loop.results(); ++k)
        put_slice(outer(loop.result(k)), iteration, in(loop.slice_out(k)),
                  body.type(loop.slice_out(k)));
      for (size_t i = 0; i < loop.carries(); ++i) carries[i] = in(loop.carry_out(i));
    }
    for (size_t i = 0; i < loop.carries(); ++i) outer(loop.last(i)) = carries[i];
  }

  // Runs the tasks and transfers of a stage, in order. A slot has one value for each microbatch,
  // whose memory is free after the last call that reads it.
  void run_pipeline(const Node& node, Values& values) {
    const Pipeline pipeline(node);
    const auto body_inputs = [&](size_t b) -> const std::vector<GraphInput>& {
      return pipeline.body(b).inputs();
    };
    bool reads_any = false;
    for (size_t b = 0; b < pipeline.bodies(); ++b)
      reads_any = reads_any || reads_index(pipeline.body(b));
    const FlatValue indices =
        reads_any ? loop_indices(pipeline.axis(), pipeline.count()) : FlatValue();
    const int64_t index_bytes = pipeline.body(0).type(body_inputs(0)[0].value).bytes();

    std::vector<FlatValue> outputs(pipeline.outputs());
    for (size_t i = 0; i < pipeline.outputs(); ++i)
      outputs[i] = i < pipeline.carries()
                       ? values[node.inputs[i]]
                       : new_value(program_.graph->type(node.outputs[i]).bytes());
    std::map<std::pair<int64_t, int64_t>, FlatValue> slots;  // By number and microbatch.
    for (const PipelineCall& call : pipeline.calls()) {
      const auto b = static_cast<size_t>(call.body);
      const Graph& body = pipeline.body(b);
      Values inner(body.values().size());
      inner[body_inputs(b)[0].value] = part(indices, call.microbatch, index_bytes);
      const std::vector<int64_t>& reads = pipeline.reads(b);
      for (size_t i = 0; i < reads.size(); ++i) {
        const int64_t number = reads[i];
        const ValueId input = body_inputs(b)[i + 1].value;
        if (static_cast<size_t>(number) >= pipeline.operands()) {
          inner[input] = slots.at({number - std::ssize(node.inputs), call.microbatch});
        } else if (pipeline.is_carry(number)) {
          inner[input] = outputs[static_cast<size_t>(number)];
        } else {
          const FlatValue operand = values[node.inputs[static_cast<size_t>(number)]];
          inner[input] = pipeline.is_stacked(number)
                             ? part(operand, call.microbatch, body.type(input).bytes())
                             : operand;
        }
      }
      task_ = new_task(pipeline.task_name(call));
      run(body, inner);
      task_ = -1;
      const std::vector<int64_t>& writes = pipeline.writes(b);
      for (size_t i = 0; i < writes.size(); ++i) {
        const int64_t number = writes[i];
        const ValueId result = body.outputs()[i].value;
        if (static_cast<size_t>(number) >= pipeline.outputs()) {
          slots[{number - std::ssize(node.outputs), call.microbatch}] = inner[result];
        } else if (pipeline.is_carry(number)) {
          outputs[static_cast<size_t>(number)] = inner[result];
        } else {
          put_slice(outputs[static_cast<size_t>(number)], call.microbatch, inner[result],
                    body.type(result));
        }
      }
    }
    for (size_t i = 0; i < pipeline.outputs(); ++i) values[node.outputs[i]] = outputs[i];
  }

  int64_t new_task(std::string name) {
    if (name.empty()) return -1;
    program_.tasks.push_back(std::move(name));
    return std::ssize(program_.tasks) - 1;
  }

  // Returns whether a loop's body reads the index, its first input.
  static bool reads_index(const Graph& body) {
    const ValueId index = body.inputs()[0].value;
    return std::ranges::any_of(body.nodes(),
                               [&](const Node& node) {
                                 return std::ranges::find(node.inputs, index) != node.inputs.end();
                               }) ||
           std::ranges::find(body.outputs(), index, &GraphOutput::value) != body.outputs().end();
  }

  // Launches the computation of the indices [0, count) of a loop.
  FlatValue loop_indices(const std::string& axis, int64_t count) {
    const NodeId node = index_node(*program_.helpers, axis, count);
    const Node& made = program_.helpers->node(node);
    const FlatValue all = new_value(program_.helpers->type(made.outputs[0]).bytes());
    const int64_t scratch = scratch_bytes(*program_.helpers, made);
    append({.graph = program_.helpers.get(),
            .node = node,
            .flat_node = program_.nodes.push_back(&made),
            .outputs = program_.values.add(std::span(&all, 1))},
           scratch);
    return all;
  }

  void put_slice(FlatValue result, int64_t iteration, FlatValue slice, const Type& type) {
    if (result.stack != kNone) {
      stacks_[result.stack][static_cast<size_t>(iteration)] = slice;
    } else {
      alias_into(slice, part(result, iteration, slice.bytes), type);
    }
  }

  // Makes the buffer of `value` a part of `place`, or copies it if that is impossible.
  void alias_into(FlatValue value, FlatValue place, const Type& type) {
    FlatBuffer& buffer = program_.buffers[value.buffer];
    const bool whole = value.offset == 0 && value.bytes == buffer.bytes;
    if (whole && buffer.parent == kNone && !buffer.is_input) {
      buffer.parent = place.buffer;
      buffer.parent_offset = place.offset;
    } else {
      add_copy(program_, type, value, place);
    }
  }

  const KernelFacts& facts_;
  FlatProgram program_;
  IndexedVector<StackId, std::vector<FlatValue>> stacks_;
  std::map<const Graph*, ValueFlags> sliced_;
  std::map<const Graph*, FlatGraph> flat_;
  int64_t task_ = -1;  // Task of the launches being added.
};

}  // namespace

std::optional<int64_t> view_offset(const Graph& graph, const Node& node) {
  if (node.inputs.empty() || node.outputs.empty()) return std::nullopt;
  const Type& from = graph.type(node.inputs[0]);
  const Type& to = graph.type(node.outputs[0]);
  if (node.op->op_class == OpClass::kView) return 0;
  // A slice over mesh axes begins at a different offset on each device, but all devices share one
  // plan.
  if (node.op == &kSliceOp && !node.attributes.has(key::kMeshAxes)) return slice_offset(from, node);
  const bool keeps_elements = node.op == &kTransposeOp || node.op == &kBroadcastOp;
  if (keeps_elements && axes_without_units(from) == axes_without_units(to)) return 0;
  return std::nullopt;
}

void add_copy(FlatProgram& program, const Type& type, FlatValue from, FlatValue to) {
  const NodeId node = copy_node(*program.helpers, type);
  program.launches.push_back({.graph = program.helpers.get(),
                              .node = node,
                              .flat_node = program.nodes.push_back(&program.helpers->node(node)),
                              .inputs = program.values.add(std::span(&from, 1)),
                              .outputs = program.values.add(std::span(&to, 1))});
}

std::span<FlatValue> FlatValues::add(size_t count) {
  constexpr size_t kBlock = 4096;
  if (count > free_.size()) {
    const size_t size = std::max(count, kBlock);
    blocks_.push_back(std::make_unique<FlatValue[]>(size));
    free_ = {blocks_.back().get(), size};
  }
  const std::span<FlatValue> added = free_.first(count);
  free_ = free_.subspan(count);
  return added;
}

std::span<FlatValue> FlatValues::add(std::span<const FlatValue> values) {
  const std::span<FlatValue> added = add(values.size());
  std::ranges::copy(values, added.begin());
  return added;
}

FlatProgram flatten(std::shared_ptr<const Graph> graph, const KernelFacts& facts) {
  return Flattener(std::move(graph), facts).flatten();
}

}  // namespace tessera
