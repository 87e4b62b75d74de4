// SPDX-License-Identifier: Apache-2.0
// --mode=import: weights of a Hugging Face directory become the checkpoint of step 0 of a run that
// has not begun, from which training, evaluation and decoding go on.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/io/safetensors.h"
#include "core/runtime/comm/process_group.h"
#include "core/runtime/executor/executor.h"
#include "tasks/base_run.h"
#include "tasks/config/experiment.h"
#include "tasks/config/run_options.h"
#include "tasks/interop/hf_weights.h"

namespace tessera {

// Reads options.input into the directory of the run. Every process reads the files and keeps what
// its devices hold; all write the checkpoint together. Optimizer state is fresh, and the input is
// at its beginning; its data need not be there yet.
std::unique_ptr<BaseRun> import_run(const ExperimentConfig& config, const RunOptions& options,
                                    const std::vector<Device*>& devices, ProcessGroup& processes);

// What the directory must hold for these tensors, by the names it has there. Error that lists what
// is missing, of another shape, or not known.
std::vector<HfTensor> match_hf_tensors(std::vector<HfTensor> wanted, const SafetensorsModel& files,
                                       const HfConfig& config);

// Fills what this process's devices hold of the weights, from the files that these were matched to.
void read_hf_weights(const SafetensorsModel& files, const std::vector<HfTensor>& tensors,
                     const ParameterTable& table, Executor& executor);

}  // namespace tessera
