// SPDX-License-Identifier: Apache-2.0
// What the command line says of one run, beside the experiment's configuration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/source_site.h"

namespace tessera {

enum class RunMode { kTrain, kEval, kDecode, kPlan, kExport, kImport };

// --profile=START:N, in steps from the first of this process.
struct ProfileWindow {
  int64_t start = 0;
  int64_t steps = 1;
};

enum class Verbosity { kSilent, kNormal };

// Which checkpoints --mode=eval, decode and export look at, and which one training goes on from.
struct CheckpointChoice {
  enum class Kind {
    kNewest,
    kStep,
    kAll,           // Eval: each that there is, oldest first.
    kFollow,        // Eval: each as a running job saves it, until that job is done.
    kAutoFallback,  // Train: the newest that is not damaged.
  };
  Kind kind = Kind::kNewest;
  int64_t step = 0;  // Of kStep.
};

struct RunOptions {
  std::string experiment;             // "quickstart.SourceLm", for headings and hparams.toml,
  SourceSite site;                    // and the line that registers it.
  std::filesystem::path job_log_dir;  // The run's directory.
  RunMode mode = RunMode::kTrain;
  int64_t devices = 1;   // Of this process. A plan of a mesh that has a shape needs none.
  int threads = 0;       // Of this process; 0: all it may use.
  bool restart = false;  // Start over: the directory's earlier run is set aside.
  bool allow_config_change = false;
  bool dry_run = false;    // All but stepping; nothing is written.
  std::string dump_graph;  // A stage ("trace", "remat", "lower", "fuse"), or empty.
  std::optional<ProfileWindow> profile;
  CheckpointChoice checkpoint;
  std::vector<std::string> prompts;         // Of --mode=decode; none: the decode datasets.
  std::vector<std::string> prompt_ids;      // The same as token ids: "1 2 3".
  bool print_ids = false;                   // Of prompts and their continuations.
  std::string format;                       // Of --mode=export and import: "hf".
  std::filesystem::path input;              // What import reads,
  std::filesystem::path output;             // and export writes,
  std::string dtype = "f32";                // in this dtype: f32, bf16, f16 or f64,
  int64_t max_shard_bytes = 5'000'000'000;  // and in files of at most so many bytes of weights.
  std::vector<std::string> overrides;       // "path=value" of each --set, which hparams.toml cites.
  Verbosity verbosity = Verbosity::kNormal;
  // Where inputs keep what they freeze; the Trainer sets it: job_log_dir, or elsewhere in a dry
  // run.
  std::filesystem::path input_directory;
};

}  // namespace tessera
