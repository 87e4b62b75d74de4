// SPDX-License-Identifier: Apache-2.0
// Runs an experiment in its run directory: training with checkpoints, evaluation and metrics, or
// evaluation alone. Not the command line (plugins/main_runexp.cc) and not a step's mathematics
// (single_task.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/config/experiment.h"
#include "tasks/modes/base_run.h"

namespace tessera {

class ScratchDirectory;

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

// An Error from the constructor is bad configuration, found before step 0 (exit code 2); one from
// run() is a run that failed (exit code 1). Whoever catches it in one of several processes tells
// the others (ProcessGroup::fail_together).
class Trainer {
 public:
  // The devices are this process's, in the order of their numbers: options.devices of them, or one
  // for a plan. They and the processes outlive the trainer. Only process 0 writes to the run's
  // directory and to the console.
  Trainer(const ExperimentConfig& config, const RunOptions& options,
          const std::vector<Device*>& devices, ProcessGroup& processes);
  ~Trainer();

  // Returns the process's exit code: 0 when done, or when any process of the run was stopped by
  // SIGTERM or Ctrl-C and the run was saved.
  int run();

 private:
  struct Impl;
  RunOptions options_;
  std::unique_ptr<ScratchDirectory> scratch_;  // Of a dry run, whose inputs use it.
  std::unique_ptr<BaseRun> run_;               // Of the mode.
};

}  // namespace tessera
