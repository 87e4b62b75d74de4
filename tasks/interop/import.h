// SPDX-License-Identifier: Apache-2.0
// --mode=import: converts the weights of a Hugging Face directory to a checkpoint of step 0 in a
// new run, from which to train, evaluate or decode.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "core/runtime/executor/executor.h"
#include "tasks/interop/hf_files.h"
#include "tasks/interop/hf_weights.h"
#include "tasks/run/run_setting.h"

namespace tessera {

struct ImportOptions {
  std::filesystem::path input;  // The directory that is read.
};

// Reads options.input. Every process reads the files and keeps what its devices hold; all write the
// checkpoint together. Optimizer state is initial, the input is at its beginning, and its data need
// not exist.
std::unique_ptr<BaseRun> import_run(const RunContext& context, const ImportOptions& options);

// Matches the directory's tensors to these by name. Error that lists what is missing, has another
// shape, or is unknown.
std::vector<HfTensor> match_hf_tensors(std::vector<HfTensor> wanted, const HfFiles& files,
                                       const HfModel& model);

// Fills the weights of this process's devices from the matched files.
void read_hf_weights(const HfFiles& files, const std::vector<HfTensor>& tensors,
                     const ParameterTable& table, Executor& executor);

}  // namespace tessera
