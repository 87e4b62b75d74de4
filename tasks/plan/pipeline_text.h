// SPDX-License-Identifier: Apache-2.0
// The pipeline of a training step in its plan: the schedule, the layers and the activations of each
// stage, and when a stage is idle. The times are those of layers alone, in units of a forward pass
// of one layer; a backward pass takes two, one for the input and one for the weights. Internal to
// this folder.
#pragma once

#include <string>

#include "core/passes/pipeline/timeline.h"
#include "tasks/pipeline/model_pipeline.h"

namespace tessera {

PipelineTimeline timeline_of_layers(const ModelPipeline& pipeline);

std::string pipeline_plan_text(const ModelPipeline& pipeline);
std::string pipeline_plan_json(const ModelPipeline& pipeline);

}  // namespace tessera
