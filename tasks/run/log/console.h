// SPDX-License-Identifier: Apache-2.0
// The progress output of a run: one line that is rewritten on a terminal, occasional plain lines
// elsewhere; and tables. Programs should read metrics.jsonl instead.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/number_text.h"

namespace tessera {

struct Progress {
  int64_t step = 0;  // Number of steps done.
  int64_t num_steps = 0;
  double loss = 0.0;
  double tokens_per_second = 0.0;
  double mfu = 0.0;  // 0 to 1; negative: unknown.
  double seconds_left = 0.0;
};

// "step   120/2000  loss 2.1034  12.3k tokens/s  MFU 41.0 %  0:34 left"
std::string progress_text(const Progress& progress);

// The lines of a table: the first column is aligned to the left, the others to the right. Columns
// beyond the 100th of a line follow in another table, with the first column again.
std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows);

class Console {
 public:
  enum class Mode { kSilent, kPlain, kTerminal };
  explicit Console(Mode mode) : mode_(mode) {}
  // Terminal or plain, depending on standard output.
  static Mode detect();

  // Rewrites the line on a terminal; elsewhere prints a line at intervals that grow to 10 s.
  void progress(const Progress& progress);
  // Shows the progress of other work: a text of at most 80 columns. Off a terminal, a line at
  // intervals that grow to `longest_seconds`.
  void progress(std::string_view text, double longest_seconds);
  // From now on lines have the name `to` in place of the path `from`.
  void rename(std::string from, std::string to) { from_ = std::move(from), to_ = std::move(to); }
  // Prints a line that stays.
  void info(std::string_view line);
  // Why output has failed (a closed pipe, a full disk); "" if it has not. After a failure nothing
  // more is printed, and the run continues.
  const std::string& loss() const { return loss_; }

 private:
  bool progress_is_due() const;
  void write_progress(std::string_view text, double longest_seconds);
  void write(std::string_view text);

  Mode mode_;
  std::string from_, to_;
  std::string loss_;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point next_;
  double interval_seconds_ = 1.0;
};

}  // namespace tessera
