// SPDX-License-Identifier: Apache-2.0
// Appends numbers to texts that are built often, for which a format takes too long.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <string>

namespace tessera {

inline void append_number(int64_t number, std::string& text) {
  std::array<char, 24> digits;
  text.append(digits.data(), std::to_chars(digits.data(), std::end(digits), number).ptr);
}

}  // namespace tessera
