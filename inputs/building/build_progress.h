// SPDX-License-Identifier: Apache-2.0
// What a build says of itself while it runs: a bar on a terminal, a line now and then elsewhere.
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
  int64_t bytes_before = 0;  // Of `bytes`, those that an earlier process did.
  int64_t tokens = 0;
  double seconds = 0.0;
};

// "[=====>    ] 42 %  1.26 of 3.00 GB  87.3 MB/s  212.40M tokens  0:20 left"; without the bar for
// `width` 0.
std::string build_status_text(const BuildStatus& status, int width);

class BuildProgress {
 public:
  enum class Mode { kTerminal, kPlain, kSilent };

  BuildProgress(std::ostream& out, Mode mode);
  ~BuildProgress();
  // kTerminal if that is where `out` ends.
  static Mode detect(const std::ostream& out);

  // Asks for the status only when it is time to show it.
  void show(const std::function<BuildStatus()>& status_now);
  void say(const std::string& line);  // Not lost among what is shown.

 private:
  using Clock = std::chrono::steady_clock;
  void clear();

  std::ostream& out_;
  Mode mode_;
  Clock::time_point begun_ = Clock::now();
  Clock::time_point next_ = begun_;  // When to show the next.
  double interval_seconds_ = 1.0;
  bool is_line_open_ = false;
};

}  // namespace tessera
