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
#include "inputs/flat_tokens/build_journal.h"

namespace tessera {

struct BuildStatus {
  int64_t bytes = 0;  // On disk, read and tokenised.
  int64_t total_bytes = 0;
  int64_t bytes_before = 0;  // Done by an earlier process; included in `bytes`.
  int64_t tokens = 0;
  double seconds = 0.0;
};

// Called about ten times a second; `status` returns the status.
using BuildTick = std::function<void(const std::function<BuildStatus()>& status)>;

// The multi-threaded part of a build (build_work.cc): does what the journal has not recorded. Error
// if the first relevant unit failed. Returns the progress of the units in the output, in order; the
// last may have extra tokens.
std::vector<UnitProgress> run_build_work(const TokenBuild& build, BuildJournal* journal,
                                         const BuildTick& on_tick);

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
