// SPDX-License-Identifier: Apache-2.0
// Parses the flags of runexp and checks what can be checked without an experiment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "plugins/mode_flags.h"
#include "tasks/config/run_options.h"

namespace tessera {

struct CommandLine {
  enum class Action {
    kRun,
    kHelp,
    kVersion,
    kList,
    kDescribe,
    kDiff,
    kSelfcheck,
    kSweep,
    kCalibrate,
    kNew,
    kReport,
    kCompare,
    kWatch
  };
  Action action = Action::kRun;
  std::string experiment;
  std::filesystem::path config;  // In place of `experiment`: a run's directory or hparams.toml.
  std::string diff_with;
  std::filesystem::path new_project;        // For kNew: the folder to create.
  std::vector<std::filesystem::path> runs;  // For kReport and kWatch one, for kCompare several.
  uint16_t port = 0;                        // For kWatch; 0: one that is free.
  std::vector<std::string> sets;            // Of --set_file, then of --set.
  bool smoke = false;                       // Make the experiment small.
  bool has_devices = false;                 // --devices is given.
  std::vector<std::filesystem::path> plugin_path;
  std::string device = "cpu";       // The kind of device.
  int threads = 0;                  // 0: all available.
  bool traces_early_steps = false;  // --profile is not given.
  SweepFlags sweep;
  std::optional<SearchOptions> search;  // --search: its devices are those of --devices if empty.
  std::optional<ReplayOptions> replay;  // With --mode=replay.
  std::optional<RefitOptions> refit;    // With --mode=calibrate --trace; the run's mode is a plan.
  std::filesystem::path launch_costs;   // The file; or empty.
  RunOptions run;                       // `experiment` and a default `job_log_dir` are set later.
};

// `arguments` without the program's name. Error for an unknown flag, with the nearest one, and for
// an invalid value.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

std::string help_text();

}  // namespace tessera
