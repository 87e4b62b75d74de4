// SPDX-License-Identifier: Apache-2.0
// The cheapest sequence of collectives, slices and masks from one layout of an array to another: a
// shortest path over layouts. Plans are for all devices; lower.h adds the steps to a device's
// graph.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

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
const OpDef& step_op(StepKind kind);  // Returns the op of a step.

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

// Bytes and collectives of each device in a step or plan.
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

  // Returns the plan with the least time, then the fewest steps, then a fixed order.
  const ReshardPlan& plan(const Type& from, const Type& to);

 private:
  Mesh mesh_;
  LinkCosts costs_;
  std::map<std::pair<std::string, std::string>, ReshardPlan> plans_;  // By sized text.
};

}  // namespace tessera
