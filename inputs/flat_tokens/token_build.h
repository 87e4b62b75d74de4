// SPDX-License-Identifier: Apache-2.0
// Builds a token file, and shows the progress.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "inputs/flat_tokens/build_inputs.h"
#include "inputs/flat_tokens/build_work.h"

namespace tessera {

// Returns "[=====>    ] 42 %  1.26 of 3.00 GB  87.3 MB/s  212.40M tokens  0:20 left"; `width` 0:
// without the bar.
std::string build_status_text(const BuildStatus& status, int width);

// The progress of a build: a bar on a terminal, else occasional lines.
class BuildProgress {
 public:
  enum class Mode { kTerminal, kPlain, kSilent };

  BuildProgress(std::ostream& out, Mode mode);
  ~BuildProgress();
  // Returns kTerminal if `out` is a terminal.
  static Mode detect(const std::ostream& out);

  // Calls `status_now` only when a line is due.
  void show(const std::function<BuildStatus()>& status_now);
  void say(const std::string& line);  // Prints a line above the progress bar.

 private:
  using Clock = std::chrono::steady_clock;
  void clear();

  std::ostream& out_;
  Mode mode_;
  Clock::time_point begun_ = Clock::now();
  Clock::time_point next_ = begun_;  // When the next line is due.
  double interval_seconds_ = 1.0;
  bool is_line_open_ = false;
};

struct TokenBuilt {
  std::array<int64_t, kNumSplits> tokens{};
  std::array<int64_t, kNumSplits> documents{};
  SkippedRecords skipped;
  std::string description;  // Describes the inputs and the validation split.
};

// Builds a token file on several threads; memory is bounded by the threads and the longest
// document. The bytes of the file depend only on inputs and options, not on threads or
// interruptions.
TokenBuilt build_tokens(const TokenBuild& build, BuildProgress& progress);

}  // namespace tessera
