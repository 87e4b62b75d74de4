// SPDX-License-Identifier: Apache-2.0
#include "core/passes/views.h"

#include <string>
#include <vector>

#include "core/graph/op.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"

namespace tessera {
namespace {

std::vector<std::string> axes_beyond_one(const Type& type) {
  std::vector<std::string> names;
  for (const Axis& axis : type.axes)
    if (axis.size != 1) names.push_back(axis.name);
  return names;
}

std::optional<int64_t> slice_offset(const Type& whole, const Node& node) {
  int64_t inner = dtype_bytes(whole.dtype);
  const int64_t position = whole.find(node.attributes.get<std::string>("axis"));
  for (int64_t i = 0; i < whole.rank(); ++i) {
    const int64_t size = whole.axes[static_cast<size_t>(i)].size;
    if (i < position && size != 1) return std::nullopt;
    if (i > position) inner *= size;
  }
  return node.attributes.get<int64_t>("begin") * inner;
}

}  // namespace

std::optional<int64_t> view_offset(const Graph& graph, const Node& node) {
  if (node.inputs.empty()) return std::nullopt;
  const Type& from = graph.type(node.inputs[0]);
  const Type& to = graph.type(node.outputs[0]);
  if (node.op->op_class == OpClass::kView) return 0;
  // A shard begins elsewhere on each device, but one plan serves them all.
  if (node.op == &kSliceOp && !node.attributes.has("mesh_axes")) return slice_offset(from, node);
  const bool keeps_elements = node.op == &kTransposeOp || node.op == &kBroadcastOp;
  if (keeps_elements && axes_beyond_one(from) == axes_beyond_one(to)) return 0;
  return std::nullopt;
}

}  // namespace tessera
