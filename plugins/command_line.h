// SPDX-License-Identifier: Apache-2.0
// The flags of runexp, checked as far as they can be without looking at any experiment.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tasks/config/run_options.h"

namespace tessera {

struct CommandLine {
  enum class Action { kRun, kHelp, kVersion, kList, kDescribe, kDiff, kSelfcheck, kNew };
  Action action = Action::kRun;
  std::string experiment;
  std::string diff_with;
  std::filesystem::path new_project;  // Of kNew: the folder to make.
  std::vector<std::string> sets;
  std::vector<std::filesystem::path> plugin_path;
  std::string device = "cpu";  // A kind of device.
  int threads = 0;             // 0: all there are.
  RunOptions run;              // `experiment` and an unset `job_log_dir` are filled in later.
};

// `arguments` without the program's name. Error for an unknown flag, with the nearest, and for a
// value that cannot be.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

std::string help_text();

}  // namespace tessera
