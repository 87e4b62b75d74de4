// SPDX-License-Identifier: Apache-2.0
// --mode=export: a run's checkpoint as a Hugging Face directory, read tensor by tensor from
// whatever mesh wrote it. No device is needed.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/base_run.h"
#include "tasks/config/experiment.h"
#include "tasks/config/run_options.h"

namespace tessera {

// Writes options.output: model.safetensors (or shards with an index), config.json,
// tessera_export.json, and the tokenizer where the run has one of Hugging Face's. The directory
// appears whole, by one rename. One that holds anything but an earlier export is refused. Process 0
// does it all. The configuration and the options outlive the run.
std::unique_ptr<BaseRun> export_run(const ExperimentConfig& config, const RunOptions& options,
                                    const ProcessGroup& processes);

}  // namespace tessera
