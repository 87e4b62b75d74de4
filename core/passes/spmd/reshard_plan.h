// SPDX-License-Identifier: Apache-2.0
// The cheapest sequence of collectives, slices and masks from one layout of an array to another: a
// shortest path over layouts. Plans are for all devices; lower.h adds the steps to a device's
// graph.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/graph/mesh.h"
#include "core/graph/op.h"
#include "core/graph/type.h"

namespace tessera {

enum class StepKind {
  kSlice,      // Splits a replicated value: each device keeps its part. Free.
  kMask,       // Makes a replicated value a pending sum: all but the first device zero it. Free.
  kPad,        // Makes a split value a pending sum: pads shards with zeros. Free.
  kAllGather,  // Removes the innermost splits of an axis.
  kReduceScatter,  // Computes a pending sum and splits it along an axis.
  kAllReduce,      // Computes a pending sum or maximum on all devices.
  kAllToAll,       // Moves the innermost splits of an axis to another axis.
  kPermute,        // Moves whole shards between devices.
};
const OpDef& step_op(StepKind kind);  // The op of a step.

struct ReshardStep {
  StepKind kind = StepKind::kSlice;
  std::vector<std::string> mesh_axes;  // In the order of the split; kPermute: all that change.
  std::string axis;                    // Sliced, padded, gathered or scattered; kAllToAll: unsplit.
  std::string to_axis;                 // kAllToAll: split.
  Type result;                         // The layout after the step, without mesh axes of size 1.
};

// Costs of links. A mesh axis has a fast part (ICI) and a slow part (DCN). Collectives over both
// are assumed to be hierarchical: they work within slices first, so that only a slice's share
// crosses the slow links.
struct LinkCosts {
  double ici_bandwidth = 1e11;  // Bytes per second of one device.
  double dcn_bandwidth = 12.5e9;
  double ici_latency = 1e-6;  // Seconds per collective.
  double dcn_latency = 1e-5;

  // One second per byte.
  static LinkCosts bytes_only() { return {1.0, 1.0, 0.0, 0.0}; }
};

// What each device sends in a step or plan.
struct LinkUse {
  int64_t ici_bytes = 0, dcn_bytes = 0;
  int64_t ici_collectives = 0, dcn_collectives = 0;  // `dcn` if it crosses slices.
  int64_t bytes() const { return ici_bytes + dcn_bytes; }
  double seconds(const LinkCosts& costs) const;
  LinkUse& operator+=(const LinkUse& other);
};

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  LinkUse use;
};

// Computes plans and caches them: a program has few pairs of layouts. There is a plan for every
// pair that `reshard` (core/ops/reshard.h) accepts.
class ReshardPlanner {
 public:
  explicit ReshardPlanner(Mesh mesh, LinkCosts costs = {})
      : mesh_(std::move(mesh)), costs_(costs) {}

  // The plan with the least time, then the fewest steps, then a fixed order.
  const ReshardPlan& plan(const Type& from, const Type& to);

 private:
  Mesh mesh_;
  LinkCosts costs_;
  std::map<std::pair<std::string, std::string>, ReshardPlan> plans_;  // By sized text.
};

std::vector<ReshardStep> plan_reshard(const Type& from, const Type& to, const Mesh& mesh,
                                      const LinkCosts& costs = {});

// A list of mesh axes as a small value type, for searches over layouts.

// Mesh axes of more than one device by their position in the mesh, in order. A mesh has at most 24
// of them (kMaxDevices).
enum class MeshAxisIndex : uint8_t {};

class MeshAxisList {
 public:
  MeshAxisList() = default;
  MeshAxisList(MeshAxisIndex axis) { push_back(axis); }  // NOLINT(google-explicit-constructor)

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const MeshAxisIndex* begin() const { return axes_.data(); }
  const MeshAxisIndex* end() const { return axes_.data() + size_; }
  MeshAxisIndex* begin() { return axes_.data(); }
  MeshAxisIndex* end() { return axes_.data() + size_; }
  MeshAxisIndex operator[](size_t i) const { return axes_[i]; }
  MeshAxisIndex back() const { return axes_[size_ - 1]; }
  bool contains(MeshAxisIndex axis) const { return std::find(begin(), end(), axis) != end(); }

  void push_back(MeshAxisIndex axis) {
    CHECK(size_ < axes_.size());
    axes_[size_++] = axis;
  }
  void pop_back() { truncate(size_ - 1); }
  // Unused entries are zero, so that the comparison below is that of the lists.
  void truncate(size_t size) {
    std::fill(axes_.begin() + static_cast<std::ptrdiff_t>(size), axes_.end(), MeshAxisIndex{});
    size_ = static_cast<uint8_t>(size);
  }

  MeshAxisList from(size_t first) const {
    MeshAxisList result;
    for (size_t i = first; i < size_; ++i) result.push_back(axes_[i]);
    return result;
  }
  MeshAxisList without(const MeshAxisList& removed) const {
    MeshAxisList result;
    for (const MeshAxisIndex axis : *this)
      if (!removed.contains(axis)) result.push_back(axis);
    return result;
  }
  MeshAxisList operator+(const MeshAxisList& other) const {
    MeshAxisList result = *this;
    for (const MeshAxisIndex axis : other) result.push_back(axis);
    return result;
  }
  MeshAxisList sorted() const {
    MeshAxisList result = *this;
    std::sort(result.begin(), result.end());
    return result;
  }
  auto operator<=>(const MeshAxisList&) const = default;

 private:
  std::array<MeshAxisIndex, 24> axes_{};
  uint8_t size_ = 0;
};

}  // namespace tessera
