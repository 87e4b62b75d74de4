// SPDX-License-Identifier: Apache-2.0
// --mode=export: writes a run's checkpoint as a Hugging Face directory, tensor by tensor, whatever
// mesh saved it; needs no device. Writes options.output: model.safetensors (or shards with an
// index), config.json, tessera_export.json, and the tokenizer files if the run has a Hugging Face
// tokenizer. The directory appears by one rename. A directory with other files than those of an
// earlier export is refused. Only process 0 works. The configuration outlives the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "tasks/run/run_setting.h"

namespace tessera {

struct ExportOptions {
  CheckpointChoice checkpoint;
  std::filesystem::path output;  // The directory that is written,
  std::string family;  // model_type; "": that of the import, or the first that the model fits.
  std::string dtype = "f32";                // in this dtype: f32, bf16, f16 or f64,
  int64_t max_shard_bytes = 5'000'000'000;  // with at most so many bytes of weights per file.
};

std::unique_ptr<BaseRun> export_run(const RunContext& context, const ExportOptions& options);

}  // namespace tessera
