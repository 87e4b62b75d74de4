// SPDX-License-Identifier: Apache-2.0
// The pipeline of a training step in its plan: the schedule, the layers, activations and memory of
// each stage, and when a stage is idle. The times are those of layers alone, in units of a forward
// pass of one layer; a backward pass takes two, one for the input and one for the weights.
#pragma once

#include <string>
#include <vector>

#include "core/schedules/timeline.h"
#include "tasks/planner/text.h"
#include "tasks/task/model_pipeline.h"

namespace tessera {

struct PlannedPipeline {
  ModelPipeline division;
  std::vector<NamedBytes> peaks;  // By stage, "0" …; in a run, of the stages of this process.
};

PipelineTimeline timeline_of_layers(const ModelPipeline& pipeline);

std::string pipeline_plan_text(const PlannedPipeline& planned);
std::string pipeline_plan_json(const PlannedPipeline& planned);

}  // namespace tessera
