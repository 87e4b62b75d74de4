// SPDX-License-Identifier: Apache-2.0
// UTF-8, one character at a time, of text that may be broken: a byte that is in no valid character
// reads as U+FFFD, one byte long, so that scanning goes on and every byte is somewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

constexpr int32_t kReplacement = 0xfffd;  // What a broken byte reads as.

struct Character {
  int32_t code = 0;
  int32_t length = 0;  // Bytes; 1 for a broken one.
  bool is_valid = true;
};

namespace utf8_detail {

constexpr bool continues(unsigned char byte) { return (byte & 0xc0) == 0x80; }

inline Character broken() { return {kReplacement, 1, false}; }

}  // namespace utf8_detail

// The character at text[at], at < text.size().
inline Character character_at(std::string_view text, size_t at) {
  using utf8_detail::broken;
  using utf8_detail::continues;
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + at;
  const size_t left = text.size() - at;
  if (p[0] < 0x80) return {p[0], 1, true};
  if (p[0] < 0xc2) return broken();
  if (p[0] < 0xe0) {
    if (left < 2 || !continues(p[1])) return broken();
    return {(p[0] & 0x1f) << 6 | (p[1] & 0x3f), 2, true};
  }
  if (p[0] < 0xf0) {
    if (left < 3 || !continues(p[1]) || !continues(p[2])) return broken();
    const int32_t code = (p[0] & 0x0f) << 12 | (p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    if (code < 0x800 || (code >= 0xd800 && code < 0xe000)) return broken();
    return {code, 3, true};
  }
  if (p[0] >= 0xf5 || left < 4 || !continues(p[1]) || !continues(p[2]) || !continues(p[3]))
    return broken();
  const int32_t code =
      (p[0] & 0x07) << 18 | (p[1] & 0x3f) << 12 | (p[2] & 0x3f) << 6 | (p[3] & 0x3f);
  if (code < 0x10000 || code > 0x10ffff) return broken();
  return {code, 4, true};
}

// Where the character before `at` begins, at > 0. A broken byte is its own beginning.
inline size_t character_before(std::string_view text, size_t at) {
  size_t first = at - 1;
  for (size_t back = 1; back <= 4 && back <= at; ++back) {
    if (utf8_detail::continues(static_cast<unsigned char>(text[at - back]))) continue;
    if (character_at(text, at - back).length == static_cast<int32_t>(back)) first = at - back;
    break;
  }
  return first;
}

inline void append_utf8(int32_t code, std::string* text) {
  const auto put = [&](int32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

}  // namespace tessera
