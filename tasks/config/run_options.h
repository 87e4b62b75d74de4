// SPDX-License-Identifier: Apache-2.0
// The interface of one run of runexp, and its options that are not part of the experiment's
// configuration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tasks/hardware/hardware.h"

namespace tessera {

enum class RunMode { kTrain, kEval, kDecode, kPlan, kExport, kImport };

// --profile=START:N, in steps since this process started.
struct ProfileWindow {
  int64_t start = 0;
  int64_t steps = 1;
};

enum class Verbosity { kSilent, kNormal };

// Which checkpoints --mode=eval, decode and export read, and which one training resumes from.
struct CheckpointChoice {
  enum class Kind {
    kNewest,
    kStep,
    kAll,           // Eval: every existing one, oldest first.
    kFollow,        // Eval: each new one of a running job, until the job is done.
    kAutoFallback,  // Train: the newest that is not damaged.
  };
  Kind kind = Kind::kNewest;
  int64_t step = 0;  // For kStep.
};

// The code of a run. Its checkpoints and its event `start` have it.
struct CodeStamp {
  std::string build;     // "0.1.0, interface 3f2a9c1d04b7, g++ 12.2.0"
  std::string plugins;   // "quickstart.so 1a2b3c4d": the files and their checksums.
  std::string revision;  // Of the git repository that holds the experiment's plugin, or "".
};

struct RunOptions {
  std::string experiment;  // "quickstart.SourceLm", for headings and hparams.toml.
  SourceSite site;         // The line that registers it.
  CodeStamp code;
  std::filesystem::path job_log_dir;  // The run's directory.
  RunMode mode = RunMode::kTrain;
  int64_t devices = 1;   // Of this process. A plan for a mesh with a shape needs none.
  int threads = 0;       // Of this process; 0: all available.
  bool restart = false;  // Start over: set an existing run aside.
  bool allow_config_change = false;
  bool allow_code_change = false;
  bool dry_run = false;    // Everything but steps; writes nothing.
  std::string dump_graph;  // A stage ("trace", "remat", "lower", "fuse"), or empty.
  std::optional<ProfileWindow> profile;
  int64_t inspect_interval_steps = 0;    // Print what layers inspect() in these steps; 0: never.
  std::optional<Hardware> hardware;      // What --mode=plan predicts the speed on.
  std::optional<Hardware> launch_costs;  // With launches, for the schedule of collectives.
  std::filesystem::path plan_directory;  // Where --mode=plan writes its files; empty: nowhere.
  std::filesystem::path compare_plan;    // The earlier plan that it is compared with.
  CheckpointChoice checkpoint;
  std::vector<std::string> prompts;         // For --mode=decode; none: the decode datasets.
  std::vector<std::string> prompt_ids;      // Prompts as token ids: "1 2 3".
  bool print_ids = false;                   // Print ids of prompts and continuations.
  std::string format;                       // For --mode=export and import: "hf".
  std::filesystem::path input;              // The directory that import reads.
  std::filesystem::path output;             // The directory that export writes, plan's file,
  std::string dtype = "f32";                // in this dtype: f32, bf16, f16 or f64,
  int64_t max_shard_bytes = 5'000'000'000;  // with at most so many bytes of weights per file.
  // "path=value" of each --set, or "--smoke path=value" of a flag, cited in hparams.toml.
  std::vector<std::string> overrides;
  Verbosity verbosity = Verbosity::kNormal;
  // Where inputs store corpus snapshots: job_log_dir, or a temporary directory in a dry run. Set by
  // make_run.
  std::filesystem::path input_directory;
};

// One run of runexp in one of its modes. The constructor finds every error of the configuration;
// run() does the work.
class BaseRun {
 public:
  virtual ~BaseRun() = default;
  // Returns the exit code of the process.
  virtual int run() = 0;
};

}  // namespace tessera
