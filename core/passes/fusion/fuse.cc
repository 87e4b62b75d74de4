// SPDX-License-Identifier: Apache-2.0
#include "core/passes/fusion/fuse.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "core/graph/op.h"
#include "core/ops/repeat.h"
#include "core/passes/fusion/fusion_groups.h"
#include "core/passes/loop.h"
#include "core/passes/rewrite.h"
#include "core/passes/simplify.h"

namespace tessera {
namespace {

// The body of one fused node: the group's nodes, with the generators they read. A graph has many
// small groups, so nothing here is of the graph's size.
class FusedBody {
 public:
  // `leaves(value)`: whether anything but these nodes reads it.
  template <typename Leaves>
  FusedBody(const Graph& graph, const std::vector<NodeId>& nodes, Leaves leaves) : graph_(graph) {
    for (const NodeId id : nodes) copy(id);
    for (const NodeId id : nodes) {
      const ValueId value = graph.node(id).outputs[0];
      if (!leaves(value)) continue;
      outputs_.push_back(value);
      body_.add_output(fmt::format("{}", outputs_.size() - 1), map_.at(value));
    }
  }

  // Values of the graph that the node reads and makes.
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  Graph& body() { return body_; }

 private:
  void copy(NodeId id) {
    for (const ValueId value : graph_.node(id).inputs)
      if (!map_.contains(value)) bring_in(value);
    Node node = graph_.node(id);
    for (ValueId& value : node.inputs) value = map_.at(value);
    const ValueId made = node.outputs[0];
    const std::vector<Type> types = output_types(graph_, node);
    node.outputs.clear();
    const NodeId copied = body_.add_node(std::move(node), types);
    const ValueId inner = body_.node(copied).outputs[0];
    body_.value(inner).name = graph_.value(made).name;
    map_[made] = inner;
  }

  void bring_in(ValueId value) {
    const NodeId producer = graph_.value(value).producer;
    if (producer != kNone && graph_.node(producer).op->foldable) return copy(producer);
    const ValueId inner =
        body_.add_input(fmt::format("{}", inputs_.size()), InputKind::kLoop, graph_.type(value));
    body_.value(inner).name = graph_.value(value).name;
    map_[value] = inner;
    inputs_.push_back(value);
  }

  const Graph& graph_;
  Graph body_;
  std::unordered_map<ValueId, ValueId> map_;  // What a value of the graph is in the body.
  std::vector<ValueId> inputs_, outputs_;
};

class Fuser {
 public:
  explicit Fuser(const Graph& graph)
      : graph_(graph), is_output_(graph.values().size(), false), rewriter_(graph) {
    for (const GraphOutput& output : graph.outputs())
      is_output_[static_cast<size_t>(output.value)] = true;
  }

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
    return dce(rewriter_.to());
  }

 private:
  // Several nodes, or one that reads a generator.
  bool is_worth_fusing(const std::vector<NodeId>& nodes) const {
    if (nodes.size() > 1) return true;
    const Node& node = graph_.node(nodes[0]);
    return node.op->fusible &&
           std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId value) {
             const NodeId producer = graph_.value(value).producer;
             return producer != kNone && graph_.node(producer).op->foldable;
           });
  }

  void add_alone(NodeId id) {
    Node node = graph_.node(id);
    for (ValueId& value : node.inputs) value = rewriter_.at(value);
    if (is_repeat(node))
      node.bodies[0] = std::make_shared<const Graph>(tessera::fuse(*node.bodies[0]));
    rewriter_.copy_node_as(id, std::move(node), output_types(graph_, graph_.node(id)));
  }

  // Whether anything but these nodes reads a value.
  bool leaves(ValueId value, const std::vector<NodeId>& nodes) const {
    const std::vector<NodeId>& readers = readers_[static_cast<size_t>(value)];
    return is_output_[static_cast<size_t>(value)] ||
           std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
             return !std::binary_search(nodes.begin(), nodes.end(), reader);
           });
  }

  void add_fused(const std::vector<NodeId>& nodes) {
    FusedBody body(graph_, nodes, [&](ValueId value) { return leaves(value, nodes); });
    Node node = graph_.node(nodes.back());  // The line and layer it serves.
    node.op = &kFusedOp;
    node.attributes = {};
    node.inputs.clear();
    for (const ValueId value : body.inputs()) node.inputs.push_back(rewriter_.at(value));
    node.bodies = {std::make_shared<const Graph>(std::move(body.body()))};
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
  std::vector<bool> is_output_;
  Rewriter rewriter_;
};

}  // namespace

Graph fuse(const Graph& lowered) { return Fuser(lowered).fuse(); }

}  // namespace tessera
