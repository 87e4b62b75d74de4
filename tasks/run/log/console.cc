// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/log/console.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/seconds.h"
#include "core/base/terminal.h"
#include "tasks/run/run_setting.h"

namespace tessera {
namespace {

constexpr double kTerminalSeconds = 0.1;
constexpr double kLongestSeconds = 10.0;

}  // namespace

std::string progress_text(const Progress& progress) {
  const std::string total = std::to_string(progress.num_steps);
  std::string text =
      fmt::format("step {:>{}}/{}  loss {:.4f}  {} tokens/s", progress.step, total.size(), total,
                  plain_nan(progress.loss), count_text(progress.tokens_per_second));
  if (progress.mfu >= 0.0) text += fmt::format("  MFU {:.1f} %", 100.0 * progress.mfu);
  return text + fmt::format("  {} left", duration_text(progress.seconds_left));
}

std::vector<std::string> table_lines(const std::vector<std::vector<std::string>>& rows) {
  constexpr size_t kColumns = 100;
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::vector<std::string> text;
  for (size_t begin = 1, end; begin < widths.size(); begin = end) {
    size_t width = widths[0] + 2 + widths[begin];
    for (end = begin + 1; end < widths.size(); ++end)
      if ((width += 2 + widths[end]) > kColumns) break;
    for (const auto& row : rows) {
      std::string line = fmt::format("{:<{}}", row[0], widths[0]);
      for (size_t i = begin; i < end; ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
      line.erase(line.find_last_not_of(' ') + 1);
      text.push_back(std::move(line));
    }
  }
  return text;
}

Console::Mode Console::detect() {
  return rewrites_lines(STDOUT_FILENO) ? Mode::kTerminal : Mode::kPlain;
}

void Console::progress(const Progress& progress) {
  const bool last = progress.step == progress.num_steps;
  if (last || progress_is_due()) write_progress(progress_text(progress), kLongestSeconds);
}

void Console::progress(std::string_view text, double longest_seconds) {
  if (progress_is_due()) write_progress(text, longest_seconds);
}

bool Console::progress_is_due() const { return std::chrono::steady_clock::now() >= next_; }

void Console::write_progress(std::string_view text, double longest_seconds) {
  if (mode_ == Mode::kSilent) return;
  const double seconds = mode_ == Mode::kTerminal ? kTerminalSeconds : interval_seconds_;
  interval_seconds_ = std::min(2.0 * interval_seconds_, longest_seconds);
  next_ = in_seconds(seconds);
  line_open_ = mode_ == Mode::kTerminal;
  const std::string shown = printable(text);
  write(line_open_ ? fmt::format("{}{}", kClearLine, shown) : shown + "\n");
}

void Console::info(std::string_view line) {
  if (mode_ == Mode::kSilent) return;
  std::string text(line_open_ ? kClearLine : "");
  line_open_ = false;
  write(text + printable(renamed(std::string(line), from_, to_)) + "\n");
}

void Console::write(std::string_view text) {
  if (!loss_.empty()) return;
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (whole && std::fflush(stdout) == 0) return;
  loss_ = std::strerror(errno);
}

}  // namespace tessera
