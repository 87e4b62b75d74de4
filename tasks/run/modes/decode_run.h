// SPDX-License-Identifier: Apache-2.0
// --mode=decode: continues prompts, or documents of datasets, with the weights of a checkpoint. It
// reads the run's directory without a lock and writes decoder_out/ there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tasks/run/run_setting.h"

namespace tessera {

struct DecodeOptions {
  CheckpointChoice checkpoint;
  std::vector<std::string> prompts;     // None: the decode datasets.
  std::vector<std::string> prompt_ids;  // Prompts as token ids: "1 2 3".
  bool print_ids = false;               // Print ids of prompts and continuations.
};

std::unique_ptr<BaseRun> decode_run(const RunContext& context, const DecodeOptions& options);

}  // namespace tessera
