// SPDX-License-Identifier: Apache-2.0
// --mode=export: writes a run's checkpoint as a Hugging Face directory, tensor by tensor, whatever
// mesh saved it. Needs no device.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/config/experiment.h"
#include "tasks/config/run_options.h"

namespace tessera {

// Writes options.output: model.safetensors (or shards with an index), config.json,
// tessera_export.json, and the tokenizer files if the run has a Hugging Face tokenizer. The
// directory appears by one rename. A directory with other files than those of an earlier export is
// refused. Only process 0 works. The configuration outlives the run.
std::unique_ptr<BaseRun> export_run(const ExperimentConfig& config, const RunOptions& options,
                                    const ProcessGroup& processes);

}  // namespace tessera
