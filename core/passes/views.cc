// SPDX-License-Identifier: Apache-2.0
#include "core/passes/views.h"

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/op.h"

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
  const std::string_view op = node.op->name;
  // A shard begins elsewhere on each device, but one plan serves them all.
  if (op == "slice" && !node.attributes.has("mesh_axes")) return slice_offset(from, node);
  const bool same_order = axes_beyond_one(from) == axes_beyond_one(to);
  if ((op == "transpose" || op == "broadcast") && same_order) return 0;
  return std::nullopt;
}

}  // namespace tessera
