// SPDX-License-Identifier: Apache-2.0
// The progress of a build: a bar on a terminal, else a line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

namespace tessera {

struct BuildStatus {
  int64_t bytes = 0;  // On disk, read and tokenised.
  int64_t total_bytes = 0;
  int64_t bytes_before = 0;  // Done by an earlier process; included in `bytes`.
  int64_t tokens = 0;
  double seconds = 0.0;
};

// "[=====>    ] 42 %  1.26 of 3.00 GB  87.3 MB/s  212.40M tokens  0:20 left"; `width` 0: without
// the bar.
std::string build_status_text(const BuildStatus& status, int width);

class BuildProgress {
 public:
  enum class Mode { kTerminal, kPlain, kSilent };

  BuildProgress(std::ostream& out, Mode mode);
  ~BuildProgress();
  // kTerminal if `out` is a terminal.
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

}  // namespace tessera
