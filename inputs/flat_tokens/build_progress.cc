// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/build_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include <fmt/format.h>

namespace tessera {
namespace {

constexpr int kBarWidth = 24;
constexpr double kTerminalSeconds = 0.1;
constexpr double kLongestSeconds = 30.0;
constexpr const char* kClearLine = "\r\x1b[K";

std::string duration_text(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 3.6e8)));
  const int64_t hours = total / 3600, minutes = total / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

std::string tokens_text(int64_t tokens) {
  const auto count = static_cast<double>(tokens);
  if (count >= 1e9) return fmt::format("{:.2f}B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.2f}M", count / 1e6);
  return fmt::format("{:.1f}k", count / 1e3);
}

}  // namespace

std::string build_status_text(const BuildStatus& status, int width) {
  const double total = std::max<double>(1.0, static_cast<double>(status.total_bytes));
  const double share = std::clamp(static_cast<double>(status.bytes) / total, 0.0, 1.0);
  std::string text;
  if (width > 0) {
    const auto filled = static_cast<int>(share * width);
    text = fmt::format("[{:=<{}}{:{}}] ", "", filled, "", width - filled);
  }
  const bool is_large = status.total_bytes >= 1000 * 1000 * 1000;
  const double unit = is_large ? 1e9 : 1e6;
  const auto done = static_cast<double>(status.bytes - status.bytes_before);
  const double rate = status.seconds > 0.0 ? done / status.seconds : 0.0;
  text += fmt::format("{:.0f} %  {:.2f} of {:.2f} {}  {:.1f} MB/s  {} tokens", 100.0 * share,
                      static_cast<double>(status.bytes) / unit, total / unit,
                      is_large ? "GB" : "MB", rate / 1e6, tokens_text(status.tokens));
  if (rate > 0.0)
    text +=
        fmt::format("  {} left", duration_text((total - static_cast<double>(status.bytes)) / rate));
  return text;
}

BuildProgress::BuildProgress(std::ostream& out, Mode mode) : out_(out), mode_(mode) {
  // Prints nothing in the first second.
  if (mode == Mode::kPlain) next_ += std::chrono::seconds(1);
}

BuildProgress::~BuildProgress() { clear(); }

BuildProgress::Mode BuildProgress::detect(const std::ostream& out) {
  const bool is_terminal = (&out == &std::cerr && ::isatty(STDERR_FILENO) != 0) ||
                           (&out == &std::cout && ::isatty(STDOUT_FILENO) != 0);
  return is_terminal ? Mode::kTerminal : Mode::kPlain;
}

void BuildProgress::clear() {
  if (is_line_open_) out_ << kClearLine << std::flush;
  is_line_open_ = false;
}

void BuildProgress::show(const std::function<BuildStatus()>& status_now) {
  const Clock::time_point now = Clock::now();
  if (mode_ == Mode::kSilent || now < next_) return;
  const double seconds = mode_ == Mode::kTerminal ? kTerminalSeconds : interval_seconds_;
  interval_seconds_ = std::min(2.0 * interval_seconds_, kLongestSeconds);
  next_ = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  BuildStatus status = status_now();
  status.seconds = std::chrono::duration<double>(now - begun_).count();
  if (mode_ == Mode::kTerminal) {
    out_ << kClearLine << build_status_text(status, kBarWidth) << std::flush;
    is_line_open_ = true;
  } else {
    out_ << build_status_text(status, 0) << std::endl;
  }
}

void BuildProgress::say(const std::string& line) {
  clear();
  if (mode_ != Mode::kSilent) out_ << line << std::endl;
}

}  // namespace tessera
