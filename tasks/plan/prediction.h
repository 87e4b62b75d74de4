// SPDX-License-Identifier: Apache-2.0
// How fast a planned step would run on a device: each launch of its program priced by roofline.h,
// and from these the time of the step, tokens per second and MFU; --mode=plan --hardware=NAME.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/mesh.h"
#include "core/passes/memory/step_plan.h"
#include "tasks/hardware/hardware.h"
#include "tasks/plan/roofline.h"

namespace tessera {

// A launch of the step, in its order. Waits are not launches: their time is in `adds` of the
// collective that they wait for.
struct PricedLaunch {
  std::string name;    // "einsum", "fused add silu mul".
  std::string path;    // The layer.
  std::string source;  // "layers/feed_forward/feed_forward.cc:61"
  Phase phase = Phase::kForward;
  const OpDef* op = nullptr;
  LaunchCost cost;
  double adds = 0.0;         // Seconds that it adds to the step: less where it runs beside others.
  double model_flops = 0.0;  // What MFU counts of its FLOPs: no recomputation.
  double ideal = 0.0;        // Seconds of these at the datasheet's peak.
};

struct Prediction {
  Hardware hardware;
  std::vector<PricedLaunch> launches;
  double step_seconds = 0.0;
  double tokens_per_second = 0.0;  // Of all devices.
  double mfu = 0.0;  // Model FLOPs, causal half of attention, at the datasheet's peak.
};

// Of the program of one device of the mesh. `tokens`: of the global batch.
Prediction predict(const StepPlan& step, const Mesh& mesh, int64_t tokens,
                   const Hardware& hardware);

// A device of which only a plan can be made. It has a kernel for every op, as CUDA has; their
// scratch memory is not known.
std::unique_ptr<Device> make_planned_device(const Hardware& hardware);

// The heaviest launches by op and layer, then totals; at most 100 columns.
std::string prediction_text(const Prediction& prediction, int64_t devices, int64_t arena_bytes);
std::string prediction_json(const Prediction& prediction);

}  // namespace tessera
