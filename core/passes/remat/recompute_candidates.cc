// SPDX-License-Identifier: Apache-2.0
#include "core/passes/remat/recompute_candidates.h"

#include <algorithm>

#include "core/graph/op.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

class CheapValues {
 public:
  CheapValues(const Graph& graph, const PassesOfGraph& passes)
      : graph_(graph), passes_(passes), readers_(consumers(graph)) {}

  std::vector<bool> find() {
    std::vector<bool> cheap(graph_.values().size(), false);
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      if (node.op->op_class != OpClass::kElementwise || !passes_.is_forward(id)) continue;
      const ValueId value = node.outputs[0];
      cheap[static_cast<size_t>(value)] =
          only_elementwise_wants(value) && !is_asked_for(value) &&
          std::all_of(node.inputs.begin(), node.inputs.end(),
                      [&](ValueId operand) { return is_at_hand(operand, value); });
    }
    return cheap;
  }

 private:
  bool only_elementwise_wants(ValueId value) const {
    bool wanted = false;
    for (const NodeId id : readers_[static_cast<size_t>(value)]) {
      if (!passes_.is_backward(id)) continue;
      const Node& reader = graph_.node(id);
      if (reader.op->op_class != OpClass::kElementwise) return false;
      if (graph_.type(reader.outputs[0]).axes != graph_.type(value).axes) return false;
      wanted = true;
    }
    return wanted;
  }

  bool is_asked_for(ValueId value) const {
    for (const NodeId id : readers_[static_cast<size_t>(value)])
      if (graph_.node(id).op == &kSaveForBackwardOp) return true;
    return std::any_of(graph_.outputs().begin(), graph_.outputs().end(),
                       [&](const GraphOutput& output) { return output.value == value; });
  }

  // Whether the backward pass has `operand` anyway, or can have it for little.
  bool is_at_hand(ValueId operand, ValueId value) const {
    const NodeId producer = graph_.value(operand).producer;
    if (producer == kNone && passes_.stays(operand)) return true;
    if (producer != kNone && graph_.node(producer).op->op_class == OpClass::kGenerator) return true;
    if (graph_.type(operand).elements() * 16 <= graph_.type(value).elements()) return true;
    const std::vector<NodeId>& readers = readers_[static_cast<size_t>(operand)];
    return std::any_of(readers.begin(), readers.end(), passes_.is_backward);
  }

  const Graph& graph_;
  const PassesOfGraph& passes_;
  std::vector<std::vector<NodeId>> readers_;
};

}  // namespace

std::vector<bool> cheap_to_recompute(const Graph& graph, const PassesOfGraph& passes) {
  return CheapValues(graph, passes).find();
}

}  // namespace tessera
