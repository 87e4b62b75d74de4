// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/collective_info.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"

namespace tessera {
namespace {

int64_t product(const Type& type, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= type.axes[i].size;
  return product;
}

size_t position(const Type& type, const Node& node, AttributeName<std::string> name) {
  const int64_t position = type.find(node.attributes.get(name));
  CHECK(position >= 0);
  return static_cast<size_t>(position);
}

using Names = std::vector<std::string>;

std::string mesh_axes_of(const Node& node) {
  return fmt::format("{}", fmt::join(node.attributes.get_or(key::kMeshAxes, {}), ","));
}

std::string place_of(const Node& node) {
  const std::string line = node.site.text();
  if (node.path.empty()) return line.empty() ? "the step" : line;
  return line.empty() ? node.path : fmt::format("{}, {}", node.path, line);
}

}  // namespace

void CollectiveInfo::read_transfer(const Node& node, const Type& type) {
  const bool sends = op == &kSendOp;
  to = node.attributes.get(key::kTo);
  from = node.attributes.get(key::kFrom);
  (sends ? elements_in : elements_out) = type.elements();
  const auto& slot = node.attributes.get(key::kSlot);
  signature = fmt::format("a transfer of {}, {}, from device {} to device {}", slot,
                          type.text_sized(), from, to);
  text = fmt::format("{} of {} {} device {} over {} [{}]", op->name, slot, sends ? "to" : "from",
                     sends ? to : from, mesh_axes_of(node), place_of(node));
}

void CollectiveInfo::read_axis(const Node& node, const Type& shard) {
  const size_t axis = position(shard, node, key::kAxis);
  outer_ = product(shard, 0, axis);
  run_ = product(shard, axis, shard.axes.size()) * dtype_bytes(dtype);
}

void CollectiveInfo::read_all_to_all(const Node& node, Type type) {
  const size_t split = position(type, node, key::kSplitAxis);
  const size_t concat = position(type, node, key::kConcatAxis);
  CHECK(split != concat);
  type.axes[split].size /= size();  // Now the type of the data for one device.
  const size_t first = std::min(split, concat), second = std::max(split, concat);
  splits_first_ = split < concat;
  outer_ = product(type, 0, first);
  first_ = type.axes[first].size;
  middle_ = product(type, first + 1, second);
  second_ = type.axes[second].size;
  run_ = product(type, second + 1, type.axes.size()) * dtype_bytes(dtype);
}

int64_t CollectiveInfo::scratch_bytes() const {
  if (op == &kPermuteOp || op == &kSendOp || op == &kReceiveOp || size() == 1) return 0;
  // At least one small piece per message; pieces of more than some megabytes are not faster.
  const int64_t least = size() * 256, most = std::max(least, int64_t{4} << 20);
  const int64_t bytes = std::clamp(4 * std::max(bytes_in(), bytes_out()), least, most);
  return (bytes + 63) / 64 * 64;
}

// An array around the gathered or scattered axis is [outer_, size() parts] of runs.
Subarray CollectiveInfo::part(int64_t index) const {
  if (op == &kAllReduceOp) {
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
  const bool sends = node.op == &kSendOp, receives = node.op == &kReceiveOp;
  const Type& in = graph.type(receives ? node.outputs[0] : node.inputs[0]);
  const Type& out = graph.type(sends ? node.inputs[0] : node.outputs[0]);
  CollectiveInfo info;
  info.op = node.op;
  info.dtype = in.dtype;
  info.group = node.attributes.get(key::kGroup);
  info.index = node.attributes.get(key::kIndex);
  if (sends || receives) {
    info.read_transfer(node, in);
    return info;
  }
  info.elements_in = in.elements();
  info.elements_out = out.elements();
  const std::string axes = mesh_axes_of(node);
  info.signature =
      fmt::format("{} over {} of {} to {}", node.op->name, axes, in.text_sized(), out.text_sized());
  info.text = fmt::format("{} over {} [{}]", node.op->name, axes, place_of(node));
  if (node.op == &kAllGatherOp) {
    info.read_axis(node, in);
  } else if (node.op == &kReduceScatterOp) {
    info.read_axis(node, out);
  } else if (node.op == &kAllReduceOp) {
    const bool is_max = node.attributes.get_or(key::kReduction, "sum") == "max";
    info.reduction = is_max ? Reduction::kMax : Reduction::kSum;
    info.signature += is_max ? " max" : " sum";
  } else if (node.op == &kAllToAllOp) {
    info.read_all_to_all(node, in);
  } else {
    CHECK(node.op == &kPermuteOp, "{} is not a collective", node.op->name);
    info.to = node.attributes.get(key::kTo);
    info.from = node.attributes.get(key::kFrom);
  }
  return info;
}

void require_same_collective(int64_t device, const CollectiveInfo& info, int64_t other_device,
                             const CollectiveInfo& other) {
  CHECK(other.signature == info.signature, "device {} runs {}, device {} runs {}", device,
        info.signature, other_device, other.signature);
}

GroupTopology::GroupTopology(const std::vector<int64_t>& group, int64_t device,
                             int64_t devices_per_process) {
  std::vector<Member> members;
  for (size_t i = 0; i < group.size(); ++i)
    members.push_back({.device = group[i],
                       .index = static_cast<int64_t>(i),
                       .process = static_cast<int>(group[i] / devices_per_process)});
  std::ranges::sort(members, {}, &Member::device);  // By process, since devices are numbered so.
  bool found = false;
  for (Member& member : members) {
    if (processes_.empty() || processes_.back()[0].process != member.process)
      processes_.emplace_back();
    member.position = std::ssize(processes_.back());
    processes_.back().push_back(member);
    if (member.device != device) continue;
    own_ = processes_.size() - 1;
    self_ = member;
    found = true;
  }
  CHECK(found, "device {} is not in its own group", device);

  for (size_t here = 0; here < processes_.size(); ++here) {
    std::vector<int64_t> num_peers(processes_[here].size(), 0);
    for (size_t there = 0; there < processes_.size(); ++there) {
      if (there == here) continue;
      for (const Member& member : processes_[there]) {
        const Member& by = leader(here, member);
        max_peers_ = std::max(max_peers_, ++num_peers[static_cast<size_t>(by.position)]);
        if (by.device == device) peers_.push_back(member);
      }
    }
  }
}

std::vector<Member> GroupTopology::remote() const {
  std::vector<Member> remote;
  for (size_t there = 0; there < processes_.size(); ++there)
    if (there != own_)
      remote.insert(remote.end(), processes_[there].begin(), processes_[there].end());
  return remote;
}

}  // namespace tessera
