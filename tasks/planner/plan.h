// SPDX-License-Identifier: Apache-2.0
// The cost of a training step for any mesh, without its devices: FLOPs, memory by class, and every
// collective with the line of layer code that it serves, and its speed on a given GPU; as text
// (plan.txt, --mode=plan) and as JSON (plan.json; docs/formats.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/compile/cost.h"
#include "core/graph/mesh.h"
#include "core/io/json.h"
#include "core/schedules/timeline.h"
#include "tasks/planner/compiled_step.h"
#include "tasks/planner/prediction.h"
#include "tasks/planner/text.h"
#include "tasks/task/model_pipeline.h"
#include "tasks/task/step_sizes.h"

namespace tessera {

// The links that a collective uses: within a slice, or also between slices.
enum class Link { kIci, kDcn };

// One collective of the plan. Executions that differ only in the layer's index are counted
// together, so `value` and `path` have no indices: "lm.transformer.x_layers[].ffn".
struct PlannedCollective : CollectiveUse {
  Link link = Link::kIci;
  std::string source;  // "layers/feed_forward/feed_forward.cc:61"
};

// All collectives over the same mesh axes.
struct AxisTotal {
  std::vector<std::string> mesh_axes;
  Link link = Link::kIci;
  int64_t count = 0;
  int64_t bytes = 0;  // Sent by a device per step.
};

struct PlannedPipeline {
  ModelPipeline division;
  std::vector<NamedBytes> peaks;  // By stage, "0" …; in a run, of the stages of this process.
};

PipelineTimeline timeline_of_layers(const ModelPipeline& pipeline);

std::string pipeline_plan_text(const PlannedPipeline& planned);
std::string pipeline_plan_json(const PlannedPipeline& planned);

// A phase of task.train.phases.
struct PlannedPhase {
  StepSize size;
  int64_t steps = 0;                        // How many of the run it has.
  int64_t peak = 0;                         // Bytes of a step.
  std::optional<double> step_seconds = {};  // With --hardware.
};

// The steps in which optimizers renew a part of their state (BaseOptimizer::interval).
struct PlannedRenewal {
  int64_t interval = 1;
  int64_t peak = 0;                         // Bytes of such a step of the main phase.
  std::optional<double> step_seconds = {};  // With --hardware.
};

struct Plan {
  int64_t parameters = 0;
  int64_t devices = 1;
  std::vector<MeshAxis> mesh;
  int64_t tokens_per_step = 0;
  double flops_per_step = 0.0;     // Model FLOPs: no recomputation, causal half of attention.
  double flops_per_device = 0.0;   // Executed by one device per step, with recomputation.
  int64_t launches = 0;            // Per device and step.
  std::vector<NamedBytes> memory;  // By class at the peak; sums to `peak`.
  int64_t peak = 0;                // Bytes of a training step.
  int64_t arena = 0;               // Bytes for all programs: what a device allocates.
  std::vector<NamedBytes> saved;   // Saved for the backward pass, largest first.
  std::vector<PlannedCollective> collectives;  // In model order.
  std::vector<AxisTotal> totals;               // Largest first.
  std::optional<PlannedPipeline> pipeline;     // If layers are split over stages.
  std::optional<Prediction> prediction;        // With --hardware.
  std::vector<PlannedPhase> phases;            // If given. All else is of the main one,
  int64_t tokens_of_run = 0;                   // but this of all.
  std::optional<PlannedRenewal> renewal;       // If there are such steps. All else is without.
};

// Describes the stage that needs most memory, without a prediction.
Plan make_plan(const CompiledStep& step);

std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);
// One line for the start of a run.
std::string plan_summary(const Plan& plan);
// Writes plan.txt and plan.json, and with a prediction timeline.json and timeline.svg.
void write_plan_files(const std::filesystem::path& run_directory, const Plan& plan);

// Markdown tables, for a pull request. Both are the content of a plan.json. Lines of code move from
// version to version: lines that only one plan has are paired if layer, phase and op are the same.
std::string plan_comparison(const Json& before, const Json& now);

}  // namespace tessera
