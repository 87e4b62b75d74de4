// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/collective_info.h"

#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

CollectiveKind kind_of(std::string_view op) {
  if (op == "all_gather") return CollectiveKind::kAllGather;
  if (op == "reduce_scatter") return CollectiveKind::kReduceScatter;
  if (op == "all_reduce") return CollectiveKind::kAllReduce;
  if (op == "all_to_all") return CollectiveKind::kAllToAll;
  CHECK(op == "permute", "{} is no collective of this fabric", op);
  return CollectiveKind::kPermute;
}

int64_t product(const Type& type, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= type.axes[i].size;
  return product;
}

size_t position(const Type& type, const Node& node, std::string_view attribute) {
  const int64_t position = type.find(node.attributes.get<std::string>(attribute));
  CHECK(position >= 0);
  return static_cast<size_t>(position);
}

// `part`: the type of one device's shard of the longer array.
void read_axis(const Node& node, const Type& part, CollectiveInfo& info) {
  const size_t axis = position(part, node, "axis");
  info.outer = product(part, 0, axis);
  info.run = product(part, axis, part.axes.size()) * dtype_bytes(part.dtype);
}

void read_all_to_all(const Node& node, Type type, CollectiveInfo& info) {
  const size_t split = position(type, node, "split_axis");
  const size_t concat = position(type, node, "concat_axis");
  CHECK(split != concat);
  type.axes[split].size /= info.size();  // Now the type of what goes to one device.
  const size_t first = std::min(split, concat), second = std::max(split, concat);
  info.splits_first = split < concat;
  info.outer = product(type, 0, first);
  info.first = type.axes[first].size;
  info.middle = product(type, first + 1, second);
  info.second = type.axes[second].size;
  info.run = product(type, second + 1, type.axes.size()) * dtype_bytes(type.dtype);
}

std::string place_of(const Node& node) {
  const std::string line = node.site.text();
  if (node.path.empty()) return line.empty() ? "the step" : line;
  return line.empty() ? node.path : fmt::format("{}, {}", node.path, line);
}

}  // namespace

CollectiveInfo read_collective(const Graph& graph, const Node& node) {
  const Type& in = graph.type(node.inputs[0]);
  const Type& out = graph.type(node.outputs[0]);
  CollectiveInfo info;
  info.kind = kind_of(node.op->name);
  info.dtype = in.dtype;
  info.group = node.attributes.get<std::vector<int64_t>>("group");
  info.index = node.attributes.get<int64_t>("index");
  info.elements_in = in.elements();
  info.elements_out = out.elements();
  const auto axes = node.attributes.get_or<std::vector<std::string>>("mesh_axes", {});
  info.signature = fmt::format("{} over {} of {} to {}", node.op->name, fmt::join(axes, ","),
                               in.text_sized(), out.text_sized());
  info.text = fmt::format("{} over {} [{}]", node.op->name, fmt::join(axes, ","), place_of(node));
  switch (info.kind) {
    case CollectiveKind::kAllGather:
      read_axis(node, in, info);
      break;
    case CollectiveKind::kReduceScatter:
      read_axis(node, out, info);
      break;
    case CollectiveKind::kAllReduce:
      info.reduction = node.attributes.get_or<std::string>("reduction", "sum") == "max"
                           ? Reduction::kMax
                           : Reduction::kSum;
      info.signature += info.reduction == Reduction::kMax ? " max" : " sum";
      break;
    case CollectiveKind::kAllToAll:
      read_all_to_all(node, in, info);
      break;
    case CollectiveKind::kPermute:
      info.to = node.attributes.get<int64_t>("to");
      info.from = node.attributes.get<int64_t>("from");
      break;
  }
  return info;
}

}  // namespace tessera
