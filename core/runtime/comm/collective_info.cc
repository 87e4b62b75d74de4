// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/collective_info.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

CollectiveKind kind_of(const OpDef& op) {
  if (&op == &kAllGatherOp) return CollectiveKind::kAllGather;
  if (&op == &kReduceScatterOp) return CollectiveKind::kReduceScatter;
  if (&op == &kAllReduceOp) return CollectiveKind::kAllReduce;
  if (&op == &kAllToAllOp) return CollectiveKind::kAllToAll;
  CHECK(&op == &kPermuteOp, "{} is not a collective", op.name);
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

std::string place_of(const Node& node) {
  const std::string line = node.site.text();
  if (node.path.empty()) return line.empty() ? "the step" : line;
  return line.empty() ? node.path : fmt::format("{}, {}", node.path, line);
}

}  // namespace

void CollectiveInfo::read_axis(const Node& node, const Type& shard) {
  const size_t axis = position(shard, node, "axis");
  outer_ = product(shard, 0, axis);
  run_ = product(shard, axis, shard.axes.size()) * dtype_bytes(dtype);
}

void CollectiveInfo::read_all_to_all(const Node& node, Type type) {
  const size_t split = position(type, node, "split_axis");
  const size_t concat = position(type, node, "concat_axis");
  CHECK(split != concat);
  type.axes[split].size /= size();  // Now the type of what is sent to one device.
  const size_t first = std::min(split, concat), second = std::max(split, concat);
  splits_first_ = split < concat;
  outer_ = product(type, 0, first);
  first_ = type.axes[first].size;
  middle_ = product(type, first + 1, second);
  second_ = type.axes[second].size;
  run_ = product(type, second + 1, type.axes.size()) * dtype_bytes(dtype);
}

int64_t CollectiveInfo::scratch_bytes() const {
  if (kind == CollectiveKind::kPermute || size() == 1) return 0;
  // At least one small piece per message; pieces beyond some megabytes are not faster.
  const int64_t least = size() * 256, most = std::max(least, int64_t{4} << 20);
  const int64_t bytes = std::clamp(4 * std::max(bytes_in(), bytes_out()), least, most);
  return (bytes + 63) / 64 * 64;
}

// An array around the gathered or scattered axis is [outer_, size() parts] of runs.
Subarray CollectiveInfo::part(int64_t index) const {
  if (kind == CollectiveKind::kAllReduce) {
    const int64_t width = dtype_bytes(dtype);
    const int64_t begin = elements_in * index / size(), end = elements_in * (index + 1) / size();
    return Subarray::contiguous(begin * width, (end - begin) * width);
  }
  return Subarray(std::array{outer_, size()}, std::array{int64_t{0}, index},
                  std::array{outer_, int64_t{1}}, run_);
}

Subarray CollectiveInfo::shard() const {
  const std::array whole{outer_, int64_t{1}};
  return Subarray(whole, std::array<int64_t, 2>{}, whole, run_);
}

Subarray CollectiveInfo::outer_axis(int64_t index) const {
  return Subarray(std::array{outer_, size() * first_, middle_, int64_t{1}},
                  std::array<int64_t, 4>{0, index * first_, 0, 0},
                  std::array{outer_, first_, middle_, int64_t{1}}, second_ * run_);
}

Subarray CollectiveInfo::inner_axis(int64_t index) const {
  return Subarray(std::array{outer_, first_, middle_, size()},
                  std::array<int64_t, 4>{0, 0, 0, index},
                  std::array{outer_, first_, middle_, int64_t{1}}, second_ * run_);
}

Subarray CollectiveInfo::part_to(int64_t index) const {
  return splits_first_ ? outer_axis(index) : inner_axis(index);
}

Subarray CollectiveInfo::part_from(int64_t index) const {
  return splits_first_ ? inner_axis(index) : outer_axis(index);
}

CollectiveInfo read_collective(const Graph& graph, const Node& node) {
  const Type& in = graph.type(node.inputs[0]);
  const Type& out = graph.type(node.outputs[0]);
  CollectiveInfo info;
  info.kind = kind_of(*node.op);
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
      info.read_axis(node, in);
      break;
    case CollectiveKind::kReduceScatter:
      info.read_axis(node, out);
      break;
    case CollectiveKind::kAllReduce:
      info.reduction = node.attributes.get_or<std::string>("reduction", "sum") == "max"
                           ? Reduction::kMax
                           : Reduction::kSum;
      info.signature += info.reduction == Reduction::kMax ? " max" : " sum";
      break;
    case CollectiveKind::kAllToAll:
      info.read_all_to_all(node, in);
      break;
    case CollectiveKind::kPermute:
      info.to = node.attributes.get<int64_t>("to");
      info.from = node.attributes.get<int64_t>("from");
      break;
  }
  return info;
}

}  // namespace tessera
