// SPDX-License-Identifier: Apache-2.0
#include "core/passes/fuse.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "core/graph/op.h"
#include "core/passes/fusion_groups.h"
#include "core/passes/loop.h"
#include "core/passes/rewrite.h"
#include "core/passes/simplify.h"

namespace tessera {
namespace {

// The body of one fused node: the group's nodes, with the generators they read.
class FusedBody {
 public:
  FusedBody(const Graph& graph, const std::vector<NodeId>& nodes,
            const std::vector<bool>& read_outside)
      : graph_(graph), rewriter_(graph) {
    for (const NodeId id : nodes) copy(id);
    for (const NodeId id : nodes) {
      const ValueId value = graph.node(id).outputs[0];
      if (!read_outside[static_cast<size_t>(value)]) continue;
      outputs_.push_back(value);
      rewriter_.to().add_output(fmt::format("{}", outputs_.size() - 1), rewriter_.at(value));
    }
  }

  // Values of the graph that the node reads and makes.
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  const Graph& body() const { return rewriter_.to(); }

 private:
  void copy(NodeId id) {
    for (const ValueId value : graph_.node(id).inputs)
      if (!rewriter_.has(value)) bring_in(value);
    rewriter_.copy_node(id);
  }

  void bring_in(ValueId value) {
    const NodeId producer = graph_.value(value).producer;
    if (producer != kNone && is_foldable(graph_.node(producer))) return copy(producer);
    const ValueId inner = rewriter_.to().add_input(fmt::format("{}", inputs_.size()),
                                                   InputKind::kLoop, graph_.type(value));
    rewriter_.to().value(inner).name = graph_.value(value).name;
    rewriter_.set(value, inner);
    inputs_.push_back(value);
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<ValueId> inputs_, outputs_;
};

class Fuser {
 public:
  explicit Fuser(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Graph fuse() {
    rewriter_.copy_inputs();
    for (const std::vector<NodeId>& nodes : FusionGroups(graph_).in_order()) {
      if (is_worth_fusing(nodes)) {
        add_fused(nodes);
      } else {
        add_alone(nodes[0]);
      }
    }
    rewriter_.copy_outputs();
    return drop_dead(rewriter_.to());
  }

 private:
  // Several nodes, or one that reads a generator.
  bool is_worth_fusing(const std::vector<NodeId>& nodes) const {
    if (nodes.size() > 1) return true;
    const Node& node = graph_.node(nodes[0]);
    return is_fusible(node) &&
           std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId value) {
             const NodeId producer = graph_.value(value).producer;
             return producer != kNone && is_foldable(graph_.node(producer));
           });
  }

  void add_alone(NodeId id) {
    Node node = graph_.node(id);
    for (ValueId& value : node.inputs) value = rewriter_.at(value);
    if (is_repeat(node))
      node.bodies[0] = std::make_shared<const Graph>(tessera::fuse(*node.bodies[0]));
    rewriter_.copy_node_as(id, std::move(node), output_types(graph_, graph_.node(id)));
  }

  // Whether anything but these nodes reads each value.
  std::vector<bool> read_outside(const std::vector<NodeId>& nodes) const {
    std::vector<bool> outside(graph_.values().size(), false);
    for (const NodeId id : nodes)
      for (const ValueId value : graph_.node(id).outputs)
        for (const NodeId reader : readers_[static_cast<size_t>(value)])
          if (!std::binary_search(nodes.begin(), nodes.end(), reader))
            outside[static_cast<size_t>(value)] = true;
    for (const GraphOutput& output : graph_.outputs())
      outside[static_cast<size_t>(output.value)] = true;
    return outside;
  }

  void add_fused(const std::vector<NodeId>& nodes) {
    const FusedBody body(graph_, nodes, read_outside(nodes));
    Node node = graph_.node(nodes.back());  // The line and layer it serves.
    node.op = &find_op("fused");
    node.attributes = {};
    node.inputs.clear();
    for (const ValueId value : body.inputs()) node.inputs.push_back(rewriter_.at(value));
    node.bodies = {std::make_shared<const Graph>(body.body())};
    std::vector<Type> types;
    for (const ValueId value : body.outputs()) types.push_back(graph_.type(value));
    Graph& to = rewriter_.to();
    const NodeId made = to.add_node(std::move(node), types);
    for (size_t i = 0; i < body.outputs().size(); ++i) {
      const ValueId value = to.node(made).outputs[i];
      to.value(value).name = graph_.value(body.outputs()[i]).name;
      rewriter_.set(body.outputs()[i], value);
    }
  }

  const Graph& graph_;
  std::vector<std::vector<NodeId>> readers_ = consumers(graph_);
  Rewriter rewriter_;
};

}  // namespace

Graph fuse(const Graph& lowered) { return Fuser(lowered).fuse(); }

}  // namespace tessera
