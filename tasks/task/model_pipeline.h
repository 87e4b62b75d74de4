// SPDX-License-Identifier: Apache-2.0
// How a run divides its model over the mesh axis `stage`: the schedule, and the layers of each
// piece. It finds every error in the configuration, the mesh and the model that concerns them. It
// neither traces nor runs a program.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/rules.h"
#include "core/runtime/executor/program_arrays.h"
#include "core/schedules/table.h"
#include "layers/parameter.h"
#include "tasks/task/hparams.h"

namespace tessera {

struct ModelPipeline {
  PipelineTable table;                    // Schedule of a training step.
  std::vector<int64_t> layers_of_pieces;  // In the order of the model.
};

// Whether the mesh has several stages and the rules split layers over them.
bool is_pipelined(const AxisRules& rules, const Mesh& mesh);

// The pipeline of a run, or nullopt if it has none. `rules` have passed check_rules. Without
// task.train.pipeline_schedule the schedule is OneForwardOneBackward. Error
// - if a schedule or layers of pieces are set, and the mesh has no axis `stage`, or has several
//   stages and no rule splits layers over them;
// - of the schedule, for these numbers of stages and microbatches (checked_table);
// - if no schedule is set and there is one microbatch;
// - if the model has no stack of layers (Repeated), or several, or a weight of it is not split over
//   `stage` and nothing else, or another weight is;
// - if the layers cannot be divided into pieces.
std::optional<ModelPipeline> model_pipeline(const TrainHParams& train,
                                            const ParameterTable& parameters,
                                            const AxisRules& rules, const Mesh& mesh);

// The mesh of the pipeline: unless the pieces are equal blocks of layers, they are those of
// Mesh::divide_layers().
Mesh with_pieces(Mesh mesh, const ModelPipeline& pipeline);

// The table by which a program runs: for a training step that of the pipeline, for evaluation the
// forwards of as many microbatches as its loop has. nullopt for a program without a loop over
// microbatches, such as one that decodes: every device then gathers the layers of all stages.
std::optional<PipelineTable> table_for(const ModelPipeline& pipeline, const Graph& traced);

// The remark that a run prints if it decodes on such a mesh.
std::string remark_on_decoding(const ModelPipeline& pipeline);

// A warning for each weight that several stages hold, such as an embedding that is also the table
// of the softmax: the bytes of its gradient on a device, which they add up in each step. `arrays`
// are Executor::persistent().
std::vector<std::string> warnings_of_shared_weights(std::span<const Buffer> arrays,
                                                    const Mesh& mesh);

}  // namespace tessera
