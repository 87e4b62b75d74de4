// SPDX-License-Identifier: Apache-2.0
#include "core/passes/spmd/device_attributes.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/graph/op.h"
#include "core/graph/shard.h"
#include "core/ops/collective.h"
#include "core/ops/layout.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

// The tensor whose shard's position the op needs; null: none.
const Type* anchor(const Graph& graph, const Node& node) {
  switch (node.op->anchor) {
    case ShardAnchor::kResult:
      return &graph.type(node.outputs[0]);
    case ShardAnchor::kFirstOperand:
      return &graph.type(node.inputs[0]);
    case ShardAnchor::kNone:
      return nullptr;
  }
  return nullptr;
}

bool is_split(const Type& type, const Mesh& mesh) {
  return std::any_of(type.axes.begin(), type.axes.end(),
                     [&](const Axis& axis) { return mesh.size_along(axis.split) > 1; });
}

// The devices in the order of their shards, those that hold equal ones in mesh order: which place a
// device has in it, and back, are one to one.
Names order_of(const Type& layout, const Names& changing, const Mesh& mesh) {
  Names order;
  const auto add = [&](const Names& mesh_axes) {
    for (const std::string& each : mesh_axes)
      if (std::find(changing.begin(), changing.end(), each) != changing.end() &&
          std::find(order.begin(), order.end(), each) == order.end())
        order.push_back(each);
  };
  for (const Axis& axis : layout.axes) add(axis.split);
  add(layout.partial.mesh_axes);
  Names all;
  for (const MeshAxis& axis : mesh.axes()) all.push_back(axis.name);
  add(all);
  return order;
}

}  // namespace

Attributes local_attributes(const Graph& graph, const Node& node, const Mesh& mesh) {
  Attributes result;
  const AxisSizeAttribute& sized = node.op->axis_size;
  for (const auto& [name, value] : node.attributes.entries()) {
    if (const Type* type = std::get_if<Type>(&value)) {
      result.set(name, local_type(*type, mesh));
    } else if (name == "split") {
      result.set(name, Names{});
    } else if (name == sized.size) {
      const std::string& axis = node.attributes.get<std::string>(sized.axis);
      const Type& type = graph.type(node.outputs[0]);
      result.set(name, local_type(type, mesh).axis(axis).size);
    } else {
      result.set(name, value);
    }
  }
  const Type* const type = anchor(graph, node);
  if (type != nullptr && is_split(*type, mesh)) result.set("anchor", *type);
  return result;
}

Attributes step_attributes(const ReshardStep& step, const Type& layout, const Mesh& mesh) {
  Attributes attributes = {{"mesh_axes", step.mesh_axes}};
  const Type local = local_type(layout, mesh), result = local_type(step.result, mesh);
  switch (step.kind) {
    case StepKind::kSlice:
      attributes.set("axis", step.axis);
      attributes.set("begin", int64_t{0});
      attributes.set("end", result.axis(step.axis).size);
      break;
    case StepKind::kPad:
      attributes.set("axis", step.axis);
      attributes.set("before", int64_t{0});
      attributes.set("after", result.axis(step.axis).size - local.axis(step.axis).size);
      break;
    case StepKind::kAllGather:
    case StepKind::kReduceScatter:
      attributes.set("axis", step.axis);
      break;
    case StepKind::kAllReduce:
      attributes.set("reduction",
                     std::string(layout.partial.kind == PartialKind::kMax ? "max" : "sum"));
      break;
    case StepKind::kAllToAll:
      attributes.set("split_axis", step.to_axis);
      attributes.set("concat_axis", step.axis);
      break;
    case StepKind::kPermute:
      attributes.set("before", layout);
      attributes.set("after", step.result);
      break;
    case StepKind::kMask:
      break;
  }
  return attributes;
}

const std::vector<int64_t>& DeviceAttributes::group(const Names& mesh_axes) {
  const auto [found, fresh] = groups_.try_emplace(mesh_axes);
  if (fresh) found->second = mesh_.group(device_, mesh_axes);
  return found->second;
}

void DeviceAttributes::fill(const Graph& graph, Node& node) {
  Attributes& attributes = node.attributes;
  if (attributes.has("anchor")) {
    const Type& type = attributes.get<Type>("anchor");
    std::vector<int64_t> extent;
    for (const Axis& axis : type.axes) extent.push_back(axis.size);
    attributes.set(std::string(kOrigin), shard_block(type, mesh_, device_).origin);
    attributes.set(std::string(kExtent), std::move(extent));
  }
  if (!attributes.has("mesh_axes")) return;
  const Names mesh_axes = attributes.get<Names>("mesh_axes");
  const int64_t index = mesh_.index_along(device_, mesh_axes);
  if (is_collective(node)) {
    attributes.set("group", group(mesh_axes));
    attributes.set("index", index);
    if (node.op == &kPermuteOp) fill_permute(attributes);
  } else if (node.op == &kMaskToOwnerOp) {
    attributes.set("keep", int64_t{index == 0});
  } else if (node.op == &kSliceOp) {
    const int64_t size = graph.type(node.outputs[0]).axis(attributes.get<std::string>("axis")).size;
    attributes.set("begin", index * size);
    attributes.set("end", (index + 1) * size);
  } else if (node.op == &kPadOp) {
    const int64_t size = graph.type(node.inputs[0]).axis(attributes.get<std::string>("axis")).size;
    attributes.set("before", index * size);
    attributes.set("after", (mesh_.size_along(mesh_axes) - 1 - index) * size);
  }
}

// The shard that this device is to hold lies with the device that has before, in the order of
// shards, the place this one has after.
void DeviceAttributes::fill_permute(Attributes& attributes) {
  const Names changing = attributes.get<Names>("mesh_axes");
  const Names before = order_of(attributes.get<Type>("before"), changing, mesh_);
  const Names after = order_of(attributes.get<Type>("after"), changing, mesh_);
  const auto at = [&](const Names& order, int64_t place) {
    return group(order)[static_cast<size_t>(place)];
  };
  attributes.set("from", at(before, mesh_.index_along(device_, after)));
  attributes.set("to", at(after, mesh_.index_along(device_, before)));
}

}  // namespace tessera
