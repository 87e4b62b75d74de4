// SPDX-License-Identifier: Apache-2.0
// The interface of one run of runexp, and the settings that all modes share beside the experiment's
// configuration. Options of one mode are beside its run (tasks/run/modes).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/devices/device.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

// --profile=START:N, in steps since this process started.
struct ProfileWindow {
  int64_t start = 0;
  int64_t steps = 1;
};

enum class Verbosity { kSilent, kNormal };

// Which checkpoints a mode reads.
struct CheckpointChoice {
  enum class Kind {
    kNewest,
    kStep,
    kAll,     // Every existing one, oldest first.
    kFollow,  // Each new one of a running job, until the job is done.
  };
  Kind kind = Kind::kNewest;
  int64_t step = 0;  // For kStep.
};

// The code of a run. Its checkpoints and its event `start` have it.
struct CodeStamp {
  std::string build;     // "0.1.0, interface 3f2a9c1d04b7, g++ 12.2.0"
  std::string plugins;   // "quickstart.so 1a2b3c4d": the files and their checksums.
  std::string revision;  // Git revision of the experiment's plugin, or "" (no repository).
};

// The text with the name `to` in place of the path `from`.
inline std::string renamed(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

struct RunSetting {
  std::string experiment;  // "quickstart.SourceLm", for headings and hparams.toml.
  SourceSite site;         // The line that registers it.
  CodeStamp code;
  std::filesystem::path job_log_dir;  // The run's directory.
  std::string url;                    // If it is in an object store (RemoteRun); else "".
  int64_t devices = 1;                // In this process. A plan for a mesh with a shape needs none.
  int threads = 0;                    // In this process; 0: all available.
  bool restart = false;               // Start over: set an existing run aside.
  bool allow_config_change = false;
  bool allow_code_change = false;
  bool dry_run = false;  // Everything but steps; writes nothing.
  // "path=value" of each --set, or "--smoke path=value" of a flag, cited in hparams.toml.
  std::vector<std::string> overrides;
  Verbosity verbosity = Verbosity::kNormal;
  // Where inputs store corpus snapshots: job_log_dir, or a temporary directory in a dry run. Set by
  // make_run (tasks/run/directory/run_directory.h).
  std::filesystem::path input_directory;

  // What messages call the run's directory.
  std::string name() const { return url.empty() ? job_log_dir.string() : url; }
};

// What every run is made of, beside the options of its mode.
struct RunContext {
  const ExperimentConfig& config;
  const RunSetting& setting;
  // The devices of this process, by their numbers: setting.devices of them. They and the processes
  // outlive the run.
  const std::vector<Device*>& devices;
  ProcessGroup& processes;
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
