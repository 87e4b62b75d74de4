// SPDX-License-Identifier: Apache-2.0
#include "core/passes/simplify.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/graph/op.h"
#include "core/passes/rewrite.h"

namespace tessera {
namespace {

// Dead code elimination. Uses are found backwards and through the bodies of loops, where a carry
// may be read only by the next iteration: a fixed point.

// Which carries, slices, … of a loop are read.
struct LoopUse {
  std::vector<bool> carries, slices, constants, results;
};

// Which values are read, and which parts of loops.
struct Use {
  ValueFlags values;
  std::map<NodeId, LoopUse> loops;
};

Use find_use(const Graph& graph, ValueFlags wanted);

LoopUse find_loop_use(const Loop& loop, const ValueFlags& wanted) {
  const Graph& body = loop.body();
  LoopUse use;
  for (size_t i = 0; i < loop.carries(); ++i) use.carries.push_back(wanted[loop.last(i)]);
  for (size_t k = 0; k < loop.results(); ++k) use.results.push_back(wanted[loop.result(k)]);
  ValueFlags in_body;
  for (bool grew = true; grew;) {
    ValueFlags outputs(body.values().size());
    for (size_t i = 0; i < loop.carries(); ++i)
      if (use.carries[i]) outputs[loop.carry_out(i)] = true;
    for (size_t k = 0; k < loop.results(); ++k)
      if (use.results[k]) outputs[loop.slice_out(k)] = true;
    in_body = find_use(body, std::move(outputs)).values;
    grew = false;
    for (size_t i = 0; i < loop.carries(); ++i) {
      if (use.carries[i] || !in_body[loop.carry_in(i)]) continue;
      use.carries[i] = grew = true;
    }
  }
  for (size_t i = 0; i < loop.slices(); ++i) use.slices.push_back(in_body[loop.slice_in(i)]);
  for (size_t i = 0; i < loop.constants(); ++i)
    use.constants.push_back(in_body[loop.constant_in(i)]);
  return use;
}

Use find_use(const Graph& graph, ValueFlags wanted) {
  Use use{.values = std::move(wanted), .loops = {}};
  for (const NodeId id : graph.nodes().ids().reversed()) {
    const Node& node = graph.node(id);
    const bool used = std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueId value) { return use.values[value]; });
    if (!used) continue;
    if (!is_repeat(node)) {
      for (const ValueId value : node.inputs) use.values[value] = true;
      continue;
    }
    const Loop loop(node);
    const LoopUse parts = find_loop_use(loop, use.values);
    for (size_t i = 0; i < loop.carries(); ++i)
      if (parts.carries[i]) use.values[loop.initial(i)] = true;
    for (size_t i = 0; i < loop.slices(); ++i)
      if (parts.slices[i]) use.values[loop.stacked(i)] = true;
    for (size_t i = 0; i < loop.constants(); ++i)
      if (parts.constants[i]) use.values[loop.constant(i)] = true;
    use.loops.emplace(id, parts);
  }
  return use;
}

template <typename Visit>
void each_kept(const std::vector<bool>& kept, const Visit& visit) {
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) visit(i);
}

void copy_used(Rewriter& rewriter, const Graph& graph, const Use& use);

// The body with only the used inputs and outputs, without dead nodes.
Graph kept_body(const Loop& loop, const LoopUse& use) {
  const Graph& body = loop.body();
  Rewriter rewriter(body);
  const auto keep_input = [&](ValueId value) {
    const auto input = std::find_if(body.inputs().begin(), body.inputs().end(),
                                    [&](const GraphInput& in) { return in.value == value; });
    rewriter.set(value, rewriter.to().add_input(input->name, input->kind, body.type(value)));
  };
  keep_input(loop.index());
  each_kept(use.carries, [&](size_t i) { keep_input(loop.carry_in(i)); });
  each_kept(use.slices, [&](size_t i) { keep_input(loop.slice_in(i)); });
  each_kept(use.constants, [&](size_t i) { keep_input(loop.constant_in(i)); });

  std::vector<ValueId> outputs;
  each_kept(use.carries, [&](size_t i) { outputs.push_back(loop.carry_out(i)); });
  each_kept(use.results, [&](size_t k) { outputs.push_back(loop.slice_out(k)); });
  ValueFlags wanted(body.values().size());
  for (const ValueId value : outputs) wanted[value] = true;
  copy_used(rewriter, body, find_use(body, std::move(wanted)));
  for (const ValueId value : outputs)
    rewriter.to().add_output("result " + std::to_string(rewriter.to().outputs().size()),
                             rewriter.at(value));
  return std::move(rewriter.to());
}

void copy_loop(Rewriter& rewriter, const Graph& graph, NodeId id, const LoopUse& use) {
  const Node& node = graph.node(id);
  const Loop loop(node);
  Node copy = node;
  copy.inputs.clear();
  copy.outputs.clear();
  const auto count = [](const std::vector<bool>& flags) {
    return std::count(flags.begin(), flags.end(), true);
  };
  copy.attributes.set("carries", static_cast<int64_t>(count(use.carries)));
  copy.attributes.set("stacked", static_cast<int64_t>(count(use.slices)));
  copy.attributes.set("constants", static_cast<int64_t>(count(use.constants)));
  copy.bodies[0] = std::make_shared<const Graph>(kept_body(loop, use));
  const auto read = [&](ValueId value) { copy.inputs.push_back(rewriter.at(value)); };
  each_kept(use.carries, [&](size_t i) { read(loop.initial(i)); });
  each_kept(use.slices, [&](size_t i) { read(loop.stacked(i)); });
  each_kept(use.constants, [&](size_t i) { read(loop.constant(i)); });

  std::vector<ValueId> outputs;
  each_kept(use.carries, [&](size_t i) { outputs.push_back(loop.last(i)); });
  each_kept(use.results, [&](size_t k) { outputs.push_back(loop.result(k)); });
  std::vector<Type> types;
  for (const ValueId value : outputs) types.push_back(graph.type(value));
  Graph& to = rewriter.to();
  const NodeId made = to.add_node(std::move(copy), types);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueId value = to.node(made).outputs[i];
    to.value(value).name = graph.value(outputs[i]).name;
    rewriter.set(outputs[i], value);
  }
}

void copy_used(Rewriter& rewriter, const Graph& graph, const Use& use) {
  for (const NodeId id : graph.nodes().ids()) {
    const std::vector<ValueId>& results = graph.node(id).outputs;
    const bool used = std::any_of(results.begin(), results.end(),
                                  [&](ValueId value) { return use.values[value]; });
    if (!used) continue;
    const auto loop = use.loops.find(id);
    if (loop != use.loops.end()) {
      copy_loop(rewriter, graph, id, loop->second);
    } else {
      rewriter.copy_node(id);
    }
  }
}

// Common subexpression elimination.

// Two inputs of a loop body with the same operand: `value` is replaced by `first`.
struct SameInput {
  ValueId value, first;
};

// Merges equal nodes, found by a hash of op and operands.
class Merger {
 public:
  Merger(const Graph& graph, const std::vector<SameInput>& same) : graph_(graph), rewriter_(graph) {
    rewriter_.copy_inputs();
    for (const SameInput& pair : same) rewriter_.set(pair.value, rewriter_.at(pair.first));
  }

  Graph merge() {
    for (const NodeId id : graph_.nodes().ids()) {
      if (is_repeat(graph_.node(id))) {
        merge_loop(id);
      } else if (!merge_with_earlier(id)) {
        remember(rewriter_.copy_node(id));
      }
    }
    rewriter_.copy_outputs();
    return std::move(rewriter_.to());
  }

 private:
  std::vector<ValueId> operands(NodeId id) const {
    std::vector<ValueId> result = graph_.node(id).inputs;
    for (ValueId& value : result) value = rewriter_.at(value);
    return result;
  }

  static size_t hash(const OpDef* op, const std::vector<ValueId>& inputs) {
    size_t result = std::hash<const OpDef*>()(op);
    for (const ValueId value : inputs) result = result * 1000003u + value.index();
    return result;
  }

  static bool may_merge(const Node& earlier, const Node& later) {
    if (earlier.remat_clone != later.remat_clone) return false;
    const OpClass kind = earlier.op->op_class;
    const bool cheap = kind == OpClass::kElementwise || kind == OpClass::kGenerator;
    return !cheap || earlier.phase == later.phase;
  }

  void remember(NodeId id) {
    const Node& node = rewriter_.to().node(id);
    seen_[hash(node.op, node.inputs)].push_back(id);
  }

  bool merge_with_earlier(NodeId id) {
    const Node& node = graph_.node(id);
    if (!node.bodies.empty()) return false;
    const std::vector<ValueId> inputs = operands(id);
    const auto candidates = seen_.find(hash(node.op, inputs));
    if (candidates == seen_.end()) return false;
    const std::vector<Type> types = output_types(graph_, node);
    for (const NodeId candidate : candidates->second) {
      const Node& earlier = rewriter_.to().node(candidate);
      const bool equal = earlier.op == node.op && earlier.inputs == inputs &&
                         earlier.attributes == node.attributes && may_merge(earlier, node) &&
                         output_types(rewriter_.to(), earlier) == types;
      if (!equal) continue;
      for (size_t i = 0; i < node.outputs.size(); ++i)
        rewriter_.set(node.outputs[i], earlier.outputs[i]);
      return true;
    }
    return false;
  }

  // Merges inputs of the body that have the same operand, and equal results of the loop.
  void merge_loop(NodeId id) {
    const Node& node = graph_.node(id);
    const Loop loop(node);
    std::vector<SameInput> same;
    const auto find_same = [&](size_t count, auto outer, auto inner) {
      std::unordered_map<ValueId, ValueId> first;
      for (size_t i = 0; i < count; ++i) {
        const auto [found, added] = first.emplace(rewriter_.at(outer(i)), inner(i));
        if (!added) same.push_back({inner(i), found->second});
      }
    };
    find_same(
        loop.slices(), [&](size_t i) { return loop.stacked(i); },
        [&](size_t i) { return loop.slice_in(i); });
    find_same(
        loop.constants(), [&](size_t i) { return loop.constant(i); },
        [&](size_t i) { return loop.constant_in(i); });

    Node copy = node;
    copy.inputs = operands(id);
    copy.bodies[0] = std::make_shared<const Graph>(Merger(loop.body(), same).merge());
    const NodeId made = rewriter_.copy_node_as(id, std::move(copy), output_types(graph_, node));

    const Loop merged(rewriter_.to().node(made));
    std::unordered_map<ValueId, ValueId> outside;  // From values of the body to values outside.
    for (size_t i = 0; i < merged.slices(); ++i)
      outside.emplace(merged.slice_in(i), merged.stacked(i));
    for (size_t k = 0; k < merged.results(); ++k) {
      const auto [found, added] = outside.emplace(merged.slice_out(k), merged.result(k));
      if (!added) rewriter_.set(loop.result(k), found->second);
    }
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::unordered_map<size_t, std::vector<NodeId>> seen_;  // Nodes of the new graph by hash.
};

}  // namespace

Graph dce(const Graph& graph) {
  ValueFlags wanted(graph.values().size());
  for (const GraphOutput& output : graph.outputs()) wanted[output.value] = true;
  const Use use = find_use(graph, std::move(wanted));
  Rewriter rewriter(graph);
  rewriter.copy_inputs();
  copy_used(rewriter, graph, use);
  rewriter.copy_outputs();
  return std::move(rewriter.to());
}

Graph cse(const Graph& graph) { return Merger(graph, {}).merge(); }

}  // namespace tessera
