// SPDX-License-Identifier: Apache-2.0
#include "core/compile/spmd/exchange_leaves.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/layer_pieces.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/leaves.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

// Those of `names` that are leaves' axes of more than one device.
Names chosen(const Names& names, const Names& leaves, const Mesh& mesh) {
  Names result;
  for (const std::string& each : names)
    if (std::ranges::find(leaves, each) != leaves.end() && mesh.size(each) > 1)
      result.push_back(each);
  return result;
}

// The axis of the leaves leads, behind that of stacked layers.
Tensor with_leaf_axis(const Tensor& x) {
  const std::vector<Axis>& axes = x.type().axes;
  const size_t place = !axes.empty() && axes[0].name == kLayersAxis ? 1 : 0;
  const std::string leaf(kLeafAxis);
  if (place < axes.size())
    return split_axis(x, axes[place].name, {leaf, 1, {}}, {axes[place].name, axes[place].size, {}});
  return broadcast(x, {{leaf, 1, {}}}, place == 1 ? axes[0].name + " " + leaf : "");
}

class Exchange {
 public:
  Exchange(Graph& local, const Node& node, const Mesh& mesh)
      : local_(local), node_(node), mesh_(mesh), leaves_(node.attributes.get(key::kMeshAxes)) {}

  // Returns the terms of all leaves for this device's part of a sum of this type.
  Tensor all_terms(const Type& sum, const Tensor& term) {
    Tensor x = with_leaf_axis(term);
    Names split;
    for (const Axis& axis : sum.axes) {
      const Names mesh_axes = chosen(axis.split, leaves_, mesh_);
      if (mesh_axes.empty()) continue;
      x = exchanged(kAllToAllOp, x, mesh_axes, axis.name);
      split.insert(split.end(), mesh_axes.begin(), mesh_axes.end());
    }
    Names others = chosen(leaves_, leaves_, mesh_);
    std::erase_if(others, [&](const std::string& each) {
      return std::ranges::find(split, each) != split.end();
    });
    return others.empty() ? x : exchanged(kAllGatherOp, x, others, "");
  }

  // Returns the places of the leaves, in their order.
  std::vector<int64_t> places() const {
    std::vector<int64_t> places(static_cast<size_t>(mesh_.size_along(order_)));
    const Names leaves = chosen(leaves_, leaves_, mesh_);
    for (const int64_t device : mesh_.group(0, leaves))
      places[static_cast<size_t>(mesh_.index_along(device, leaves))] =
          mesh_.index_along(device, order_);
    return places;
  }

 private:
  // An exchange concatenates outside of what was concatenated before.
  Tensor exchanged(const OpDef& op, const Tensor& x, const Names& mesh_axes,
                   const std::string& split) {
    order_.insert(order_.begin(), mesh_axes.begin(), mesh_axes.end());
    Node node = node_;
    node.op = &op;
    node.inputs = {x.id()};
    node.attributes = {{key::kMeshAxes, mesh_axes}};
    if (split.empty()) {
      node.attributes.set(key::kAxis, kLeafAxis);
    } else {
      node.attributes.set(key::kSplitAxis, split);
      node.attributes.set(key::kConcatAxis, kLeafAxis);
    }
    const int64_t devices = mesh_.size_along(mesh_axes);
    Type type = x.type();
    for (Axis& axis : type.axes) {
      if (axis.name == split) axis.size /= devices;
      if (axis.name == kLeafAxis) axis.size *= devices;
    }
    return {&local_, local_.node(local_.add_node(std::move(node), {type})).outputs[0]};
  }

  Graph& local_;
  const Node& node_;
  const Mesh& mesh_;
  const Names& leaves_;
  Names order_;  // Of the mesh axes along the axis of the leaves, the outermost first.
};

}  // namespace

ValueId exchange_leaves(Graph& local, const Node& node, const Type& type, const Mesh& mesh,
                        ValueId sum, ValueId term) {
  const AxisRules no_rules;
  const Mesh one_device;
  const TraceScope scope(local, one_device, no_rules);
  const ServeScope serve(node);
  const PhaseScope phase(node.phase);
  const Tensor old(&local, sum), own(&local, term);
  if (mesh.size_along(node.attributes.get(key::kMeshAxes)) == 1) return add(old, own).id();
  Exchange exchange(local, node, mesh);
  const Tensor terms = exchange.all_terms(type, own);
  return trace_op(kAddExchangedOp, {old, terms}, {{key::kPlaces, exchange.places()}}, node.site)
      .id();
}

}  // namespace tessera
