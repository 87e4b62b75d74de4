// SPDX-License-Identifier: Apache-2.0
// The cheapest way from one layout of an array to another on a mesh: which collectives, slices and
// masks do it, in which order. It plans for all devices at once; core/passes/spmd/lower.h writes
// the steps into a device's graph.
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
  kSlice,          // A replicated value: each device keeps its part. Free.
  kMask,           // A replicated value: the first device keeps it, the others have zeros. Free.
  kPad,            // A shard in zeros: a split value as a pending sum. Free.
  kAllGather,      // The innermost split of an axis, undone.
  kReduceScatter,  // A pending sum, added up and split along an axis.
  kAllReduce,      // A pending sum or maximum, put together everywhere.
  kAllToAll,       // The innermost split of an axis, moved to another axis.
  kPermute,        // Whole shards change devices.
};
const OpDef& step_op(StepKind kind);  // The op that does it.

struct ReshardStep {
  StepKind kind = StepKind::kSlice;
  std::vector<std::string> mesh_axes;  // In the order of the split; of a permute, all that change.
  std::string axis;                    // Sliced, padded, gathered or scattered; left by all_to_all.
  std::string to_axis;                 // Split by all_to_all.
  Type result;                         // The layout after it; mesh axes of size 1 are left out.
};

// What links cost. A mesh axis has a fast part (ICI) and a slow one (DCN); a collective over both
// is taken to work within slices first, so that only a slice's share crosses the slow links.
struct LinkCosts {
  double ici_bandwidth = 1e11;  // Bytes a second, of one device.
  double dcn_bandwidth = 12.5e9;
  double ici_latency = 1e-6;  // Seconds that a collective takes beside its bytes.
  double dcn_latency = 1e-5;

  // Costs that count bytes and nothing else.
  static LinkCosts bytes_only() { return {1.0, 1.0, 0.0, 0.0}; }
};

// What a step or a plan sends from each device.
struct LinkUse {
  int64_t ici_bytes = 0, dcn_bytes = 0;
  int64_t ici_collectives = 0, dcn_collectives = 0;  // Of those that cross slices, the latter.
  int64_t bytes() const { return ici_bytes + dcn_bytes; }
  double seconds(const LinkCosts& costs) const;
  LinkUse& operator+=(const LinkUse& other);
};

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  LinkUse use;
};

// Plans, and remembers them: a program has few pairs of layouts. Refuses nothing that `reshard`
// accepts (core/ops/reshard.h).
class ReshardPlanner {
 public:
  explicit ReshardPlanner(Mesh mesh, LinkCosts costs = {})
      : mesh_(std::move(mesh)), costs_(costs) {}

  // The plan of least time; of several the one of fewest steps, and then always the same one.
  const ReshardPlan& plan(const Type& from, const Type& to);

 private:
  Mesh mesh_;
  LinkCosts costs_;
  std::map<std::pair<std::string, std::string>, ReshardPlan> plans_;  // By sized text.
};

std::vector<ReshardStep> plan_reshard(const Type& from, const Type& to, const Mesh& mesh,
                                      const LinkCosts& costs = {});

}  // namespace tessera
