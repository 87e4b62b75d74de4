// SPDX-License-Identifier: Apache-2.0
// Double work merged (simplify.h), by hash of op and operands.
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/graph/op.h"
#include "core/passes/loop.h"
#include "core/passes/rewrite.h"
#include "core/passes/simplify.h"

namespace tessera {
namespace {

// Of two inputs of a graph that hold the same, the second and what to read instead.
struct SameInput {
  ValueId value, instead;
};

class Merger {
 public:
  Merger(const Graph& graph, const std::vector<SameInput>& same) : graph_(graph), rewriter_(graph) {
    rewriter_.copy_inputs();
    for (const SameInput& pair : same) rewriter_.set(pair.value, rewriter_.at(pair.instead));
  }

  Graph merge() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
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
    for (const ValueId value : inputs) result = result * 1000003u + static_cast<size_t>(value);
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

  // Operands that are one value become one in the body, and equal results one outside.
  void merge_loop(NodeId id) {
    const Node& node = graph_.node(id);
    const Loop loop(node);
    std::vector<SameInput> same;
    const auto find_same = [&](int64_t count, auto outer, auto inner) {
      std::unordered_map<ValueId, ValueId> first;
      for (int64_t i = 0; i < count; ++i) {
        const auto [found, fresh] = first.emplace(rewriter_.at(outer(i)), inner(i));
        if (!fresh) same.push_back({inner(i), found->second});
      }
    };
    find_same(
        loop.slices(), [&](int64_t i) { return loop.stacked(i); },
        [&](int64_t i) { return loop.slice_in(i); });
    find_same(
        loop.constants(), [&](int64_t i) { return loop.constant(i); },
        [&](int64_t i) { return loop.constant_in(i); });

    Node copy = node;
    copy.inputs = operands(id);
    copy.bodies[0] = std::make_shared<const Graph>(Merger(loop.body(), same).merge());
    const NodeId made = rewriter_.copy_node_as(id, std::move(copy), output_types(graph_, node));

    const Loop merged(rewriter_.to().node(made));
    std::unordered_map<ValueId, ValueId> outside;  // What a body value is known as outside.
    for (int64_t i = 0; i < merged.slices(); ++i)
      outside.emplace(merged.slice_in(i), merged.stacked(i));
    for (int64_t k = 0; k < merged.results(); ++k) {
      const auto [found, fresh] = outside.emplace(merged.slice_out(k), merged.result(k));
      if (!fresh) rewriter_.set(loop.result(k), found->second);
    }
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::unordered_map<size_t, std::vector<NodeId>> seen_;  // Of the new graph, by hash.
};

}  // namespace

Graph cse(const Graph& graph) { return Merger(graph, {}).merge(); }

}  // namespace tessera
