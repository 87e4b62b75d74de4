// SPDX-License-Identifier: Apache-2.0
// A launch with its price: the time it takes, and the FLOPs that count for MFU.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/compile/memory/step_program.h"
#include "core/graph/mesh.h"
#include "core/graph/op.h"
#include "tasks/planner/prices/roofline.h"

namespace tessera {

// All launches of one node of the program, such as those of all iterations of a loop.
struct PricedLaunch {
  std::string name;    // "einsum", "fused add silu mul".
  std::string path;    // The layer.
  std::string source;  // "layers/feed_forward/feed_forward.cc:61"
  Phase phase = Phase::kForward;
  const OpDef* op = nullptr;
  LaunchCost cost;           // Cost of one launch.
  double model_flops = 0.0;  // FLOPs of one launch that MFU counts: no recomputation.
  double ideal = 0.0;        // Seconds of these at the datasheet's peak.
  int64_t count = 1;
  // Seconds that all of them add to the step: less than `cost` where they run beside others.
  double adds = 0.0;
  bool crosses_slices = false;  // Only for a collective.
  bool is_recomputed = false;   // For the backward pass.
  bool is_measured = false;     // The seconds of `cost` are those of Hardware::launches.
};

// Seconds of launches for the schedule of overlapped collectives: those measured in a traced run,
// and the price of launches that it lacks. Unset without costs, and with costs that include no
// collective, since they do not say when one should start. The mesh must outlive it.
LaunchSeconds schedule_seconds(const std::optional<Hardware>& costs, const Mesh& mesh);

// Prices nodes once: as measured if the hardware has launches of the type, else by the roofline.
// The arguments must outlive it.
class LaunchPrices {
 public:
  LaunchPrices(const Mesh& mesh, const Hardware& hardware) : mesh_(mesh), hardware_(hardware) {}

  // The position of the launch's price in prices().
  size_t price_of(const Launch& launch);
  std::vector<PricedLaunch>& prices() { return prices_; }

 private:
  const Mesh& mesh_;
  const Hardware& hardware_;
  std::map<const Graph*, IndexedVector<NodeId, int64_t>> known_;
  const Graph* last_graph_ = nullptr;
  IndexedVector<NodeId, int64_t>* last_ = nullptr;  // Its positions, -1 for none.
  std::vector<PricedLaunch> prices_;
};

}  // namespace tessera
