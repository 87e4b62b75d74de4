// SPDX-License-Identifier: Apache-2.0
#include "core/compile/simplify.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/compile/rewrite.h"
#include "core/graph/op.h"
#include "core/ops/pipeline.h"
#include "core/ops/repeat.h"
#include "core/ops/send.h"

namespace tessera {
namespace {

// Dead code elimination.

using Names = std::vector<std::string>;

// Which operands and outputs of a loop are read. A carry is both or neither.
struct LoopUse {
  std::vector<bool> operands, outputs;
  bool is_whole = false;  // All of them are, and nothing of the body is dead.
};

// Which nodes stay, which values are read, and which parts of loops.
struct Use {
  NodeFlags nodes;
  ValueFlags values;
  std::map<NodeId, LoopUse> loops;
};

Use find_use(const Graph& graph, ValueFlags wanted, const Names& transfers);

// Whether nothing of the graph is dead, and a copy of it would be equal.
bool is_whole(const Graph& graph, const Use& use) {
  return std::ranges::find(use.nodes, false) == use.nodes.end() && is_in_order(graph) &&
         std::ranges::all_of(use.loops, [](const auto& loop) { return loop.second.is_whole; });
}

template <typename Visit>
void each_kept(const std::vector<bool>& kept, const Visit& visit) {
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) visit(i);
}

LoopUse find_loop_use(const Loop& loop, const ValueFlags& wanted, const Names& transfers) {
  const Graph& body = loop.body();
  LoopUse use;
  for (size_t i = 0; i < loop.outputs(); ++i) use.outputs.push_back(wanted[loop.output(i)]);
  Use in_body;
  for (bool grew = true; grew;) {
    ValueFlags outputs(body.values().size());
    each_kept(use.outputs, [&](size_t i) { outputs[loop.output_in(i)] = true; });
    in_body = find_use(body, std::move(outputs), transfers);
    grew = false;
    for (size_t i = 0; i < loop.carries(); ++i) {
      if (use.outputs[i] || !in_body.values[loop.carry_in(i)]) continue;
      use.outputs[i] = grew = true;
    }
  }
  for (size_t i = 0; i < loop.operands(); ++i)
    use.operands.push_back(i < loop.carries() ? use.outputs[i]
                                              : in_body.values[loop.operand_in(i)]);
  const auto all = [](const std::vector<bool>& kept) {
    return std::ranges::find(kept, false) == kept.end();
  };
  use.is_whole = all(use.operands) && all(use.outputs) && is_whole(body, in_body);
  return use;
}

Use find_use(const Graph& graph, ValueFlags wanted, const Names& transfers) {
  Use use{.nodes = NodeFlags(graph.nodes().size()), .values = std::move(wanted), .loops = {}};
  for (const NodeId id : graph.nodes().ids().reversed()) {
    const Node& node = graph.node(id);
    use.nodes[id] = any_flagged(node.outputs, use.values) || communicates_along(transfers, node);
    if (!use.nodes[id]) continue;
    if (!is_repeat(node)) {
      for (const ValueId value : node.inputs) use.values[value] = true;
      continue;
    }
    const Loop loop(node);
    const LoopUse parts = find_loop_use(loop, use.values, transfers);
    each_kept(parts.operands, [&](size_t i) { use.values[loop.operand(i)] = true; });
    use.loops.emplace(id, parts);
  }
  return use;
}

void add_used(Rewriter& rewriter, const Graph& graph, const Use& use, const Names& transfers,
              const std::function<void(NodeId)>& add);

// The body with only the used inputs and outputs, without dead nodes.
Graph kept_body(const Loop& loop, const LoopUse& use, const Names& transfers) {
  const Graph& body = loop.body();
  Rewriter rewriter(body);
  const auto keep_input = [&](size_t i) {
    const GraphInput& input = body.inputs()[i];
    rewriter.set(input.value,
                 rewriter.to().add_input(input.name, input.kind, body.type(input.value)));
  };
  keep_input(0);  // The loop index.
  each_kept(use.operands, [&](size_t i) { keep_input(1 + i); });
  std::vector<ValueId> outputs;
  each_kept(use.outputs, [&](size_t i) { outputs.push_back(loop.output_in(i)); });
  ValueFlags wanted(body.values().size());
  for (const ValueId value : outputs) wanted[value] = true;
  add_used(rewriter, body, find_use(body, std::move(wanted), transfers), transfers,
           [&](NodeId id) { rewriter.copy_node(id); });
  for (const ValueId value : outputs)
    rewriter.to().add_output("result " + std::to_string(rewriter.to().outputs().size()),
                             rewriter.at(value));
  return std::move(rewriter.to());
}

void copy_loop(Rewriter& rewriter, const Graph& graph, NodeId id, const LoopUse& use,
               const Names& transfers) {
  const Node& node = graph.node(id);
  const Loop loop(node);
  Node copy = node;
  copy.inputs.clear();
  const auto count = [&](AttributeName<size_t> role, size_t begin, size_t size) {
    const auto first = use.operands.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto kept = std::count(first, first + static_cast<std::ptrdiff_t>(size), true);
    copy.attributes.set(role, static_cast<size_t>(kept));
  };
  count(key::kCarries, 0, loop.carries());
  count(key::kStacked, loop.carries(), loop.slices());
  count(key::kConstants, loop.carries() + loop.slices(), loop.constants());
  copy.bodies[0] = std::make_shared<const Graph>(kept_body(loop, use, transfers));
  each_kept(use.operands, [&](size_t i) { copy.inputs.push_back(rewriter.at(loop.operand(i))); });
  std::vector<ValueId> outputs;
  each_kept(use.outputs, [&](size_t i) { outputs.push_back(loop.output(i)); });
  rewriter.add(std::move(copy), outputs);
}

// Adds the nodes in use, each by add(id), loops without the parts that are not.
void add_used(Rewriter& rewriter, const Graph& graph, const Use& use, const Names& transfers,
              const std::function<void(NodeId)>& add) {
  for (const NodeId id : graph.nodes().ids()) {
    if (!use.nodes[id]) continue;
    const auto loop = use.loops.find(id);
    if (loop != use.loops.end()) {
      copy_loop(rewriter, graph, id, loop->second, transfers);
    } else {
      add(id);
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
  Merger(Graph graph, const std::vector<SameInput>& same, const Names& transfers)
      : graph_(std::move(graph)), transfers_(transfers), rewriter_(graph_) {
    rewriter_.copy_inputs();
    for (const SameInput& pair : same) rewriter_.set(pair.value, rewriter_.at(pair.first));
  }

  Graph merge() {
    for (const NodeId id : graph_.nodes().ids()) {
      if (is_repeat(graph_.node(id))) {
        merge_loop(id);
      } else if (is_pipeline(graph_.node(id))) {
        merge_tasks(id);
      } else if (!merge_with_earlier(id)) {
        remember(rewriter_.move_node(graph_, id));
      }
    }
    rewriter_.copy_outputs();
    return std::move(rewriter_.to());
  }

 private:
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
    if (!node.bodies.empty() || communicates_along(transfers_, node)) return false;
    std::vector<ValueId> inputs = node.inputs;
    for (ValueId& value : inputs) value = rewriter_.at(value);
    const auto candidates = seen_.find(hash(node.op, inputs));
    if (candidates == seen_.end()) return false;
    const std::vector<SharedType> types = output_types(graph_, node);
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

  void merge_tasks(NodeId id) {
    Node node = rewriter_.mapped(id);
    for (auto& body : node.bodies)
      body = std::make_shared<const Graph>(Merger(*body, {}, transfers_).merge());
    rewriter_.add(std::move(node), graph_.node(id).outputs);
  }

  // Merges inputs of the body that have the same operand, and equal results of the loop.
  void merge_loop(NodeId id) {
    const Node& node = graph_.node(id);
    const Loop loop(node);
    std::vector<SameInput> same;
    const auto find_same = [&](size_t begin, size_t end) {
      std::unordered_map<ValueId, ValueId> first;
      for (size_t i = begin; i < end; ++i) {
        const auto [found, added] =
            first.emplace(rewriter_.at(loop.operand(i)), loop.operand_in(i));
        if (!added) same.push_back({loop.operand_in(i), found->second});
      }
    };
    const size_t constants = loop.carries() + loop.slices();
    find_same(loop.carries(), constants);
    find_same(constants, loop.operands());

    Node copy = rewriter_.mapped(id);
    copy.bodies[0] = std::make_shared<const Graph>(Merger(loop.body(), same, transfers_).merge());
    const NodeId made = rewriter_.add(std::move(copy), node.outputs);

    const Loop merged(rewriter_.to().node(made));
    std::unordered_map<ValueId, ValueId> outside;  // From values of the body to values outside.
    for (size_t i = 0; i < merged.slices(); ++i)
      outside.emplace(merged.slice_in(i), merged.stacked(i));
    for (size_t k = 0; k < merged.results(); ++k) {
      const auto [found, added] = outside.emplace(merged.slice_out(k), merged.result(k));
      if (!added) rewriter_.set(loop.result(k), found->second);
    }
  }

  Graph graph_;
  const Names& transfers_;
  Rewriter rewriter_;
  std::unordered_map<size_t, std::vector<NodeId>> seen_;  // Nodes of the new graph by hash.
};

}  // namespace

Graph dce(Graph graph) {
  ValueFlags wanted(graph.values().size());
  for (const GraphOutput& output : graph.outputs()) wanted[output.value] = true;
  const Names transfers = transfer_axes(graph);
  const Use use = find_use(graph, std::move(wanted), transfers);
  if (is_whole(graph, use)) return graph;
  Rewriter rewriter(graph);
  rewriter.copy_inputs();
  add_used(rewriter, graph, use, transfers, [&](NodeId id) { rewriter.move_node(graph, id); });
  rewriter.copy_outputs();
  return std::move(rewriter.to());
}

Graph without_unread_state(Graph graph) {
  ValueFlags read(graph.values().size());
  for (const Node& node : graph.nodes())
    for (const ValueId value : node.inputs) read[value] = true;
  for (const GraphOutput& output : graph.outputs()) {
    read[output.value] = true;
    if (output.is_update) read[graph.find_input(output.name)->value] = true;
  }
  Rewriter rewriter(graph);
  for (const GraphInput& input : graph.inputs())
    if (read[input.value] || !persists(input.kind)) rewriter.copy_input(input);
  if (rewriter.to().inputs().size() == graph.inputs().size()) return graph;
  for (const NodeId id : graph.nodes().ids()) rewriter.move_node(graph, id);
  rewriter.copy_outputs();
  return std::move(rewriter.to());
}

Graph cse(Graph graph) {
  const Names transfers = transfer_axes(graph);
  return Merger(std::move(graph), {}, transfers).merge();
}

}  // namespace tessera
