// SPDX-License-Identifier: Apache-2.0
// Formats numbers as text.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>

#include <fmt/format.h>

namespace tessera {

// Appends a number, faster than a format, for texts that are built often.
inline void append_number(int64_t number, std::string& text) {
  std::array<char, 24> digits;
  text.append(digits.data(), std::to_chars(digits.data(), std::end(digits), number).ptr);
}

// Formats "0:34", "1:02:03".
inline std::string duration_text(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 3.6e8)));
  const int64_t hours = total / 3600, minutes = total / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

// Formats "12.3k", "1.10B".
inline std::string count_text(double count) {
  if (count >= 1e9) return fmt::format("{:.2f}B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.2f}M", count / 1e6);
  if (count >= 1e3) return fmt::format("{:.1f}k", count / 1e3);
  return fmt::format("{:.0f}", count);
}

}  // namespace tessera
