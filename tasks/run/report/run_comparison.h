// SPDX-License-Identifier: Apache-2.0
// --compare: several runs as one page that overlays their charts, and as a short table of their
// final metrics and of what differs in their configurations.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

struct RunComparison {
  std::vector<std::string> names;  // The shortest ends of the runs' paths that differ.
  // A value for each run; nullopt: it has none.
  std::vector<std::pair<std::string, std::vector<std::optional<double>>>> finals;
  std::vector<std::pair<std::string, std::vector<std::optional<std::string>>>> differences;
  std::string page;  // HTML.
};

inline constexpr size_t kMostCompared = 100;  // A page has up to half a megabyte per run.
// Error unless there are at least two runs, at most kMostCompared, and each is the directory of
// another run.
RunComparison compare_runs(const std::vector<std::filesystem::path>& runs);

// The tables, at most 100 columns wide.
std::string comparison_text(const RunComparison& comparison);

// The last part of each path, with as many parts before it as make it unique: for settings
// "num_layers", "learner.learning_rate".
std::vector<std::string> short_names(const std::vector<std::string>& paths, char separator);

}  // namespace tessera
