// SPDX-License-Identifier: Apache-2.0
// How fast a planned step would run on a device: each launch of its program priced by roofline.h,
// the launches of all stages simulated on the streams of their devices (simulation.h), and from
// these the time of the step, tokens per second, MFU and cost; --mode=plan --hardware=NAME.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/devices/device.h"
#include "core/io/json.h"
#include "tasks/planner/compiled_step.h"
#include "tasks/planner/hardware/hardware.h"
#include "tasks/planner/prices/priced_launch.h"
#include "tasks/planner/step_timeline.h"

namespace tessera {

// Makes a device that can only be planned for. For a CPU its kernels are those of the CPU device;
// for others it has a kernel for every op, as CUDA has, and their scratch memory is not known.
std::unique_ptr<Device> make_planned_device(const Hardware& hardware);

// Collectives that serve a line of layer code, and how long kernels wait for them.
struct ExposedLine {
  std::string source;          // "layers/feed_forward/feed_forward.cc:61"
  double seconds = 0.0;        // Average over all stages, as all seconds here.
  double communication = 0.0;  // How long these collectives take.
};

// How the stream of kernels of one device of a stage spends a step. The four times add up to the
// step.
struct StageTimes {
  int64_t stage = 0;
  double kernels = 0.0;
  double exposed = 0.0;  // It waits while its device communicates.
  double idle = 0.0;     // It waits for another stage, or has nothing left to do: the bubbles.
  double input = 0.0;    // The batch is copied to the device.
  int64_t peak = 0;      // Bytes.
};

struct Prediction {
  Hardware hardware;
  // Launches of the stage whose kernels take longest. Waits are not launches: their time is in
  // `adds` of the collective that they wait for.
  std::vector<PricedLaunch> launches;
  double step_seconds = 0.0;
  double tokens_per_second = 0.0;  // All devices together.
  double mfu = 0.0;  // Model FLOPs, causal half of attention, at the datasheet's peak.
  int64_t tokens_per_step = 0;
  std::optional<int64_t> num_train_steps;  // Steps of the whole run, for its time and cost.
  std::vector<StageTimes> stages;          // One without a pipeline.
  std::vector<ExposedLine> exposed;        // Longest first; lines that stop no kernel are left out.
  std::shared_ptr<const StepTimeline> timeline;

  // Fractions of the time of all stages.
  double bubble_share() const;
  double exposed_share() const;
  // The measured fraction of the summed time of all launches.
  double measured_share() const;
  // Cost of training on a billion tokens, if the hardware file has a price.
  std::optional<double> cost_per_billion_tokens(int64_t devices) const;
};

// Reads the step's stages, mesh and tokens.
Prediction predict(const CompiledStep& step, const Hardware& hardware,
                   std::optional<int64_t> num_train_steps = std::nullopt);

// The heaviest launches by op and layer, then totals; at most 100 columns.
std::string prediction_text(const Prediction& prediction, int64_t devices, int64_t arena_bytes);
std::string prediction_json(const Prediction& prediction, int64_t devices);

// Rows of at most 100 columns, at most 20 of them.
std::string timeline_text(const Prediction& prediction);
// "whole run", "cost" of a prediction's last lines, if they are known.
std::string run_text(const Prediction& prediction, int64_t devices);

// Adds these members to a prediction in plan.json (docs/formats.md).
void add_timeline_json(JsonLine& json, const Prediction& prediction, int64_t devices);

}  // namespace tessera
