// SPDX-License-Identifier: Apache-2.0
// UTF-8 decoding that tolerates invalid bytes, and Unicode character classes. An invalid byte reads
// as U+FFFD with length 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

constexpr int32_t kReplacement = 0xfffd;  // Code point of an invalid byte.

struct Character {
  int32_t code = 0;
  int32_t length = 0;  // In bytes; 1 if invalid.
  bool is_valid = true;
};

namespace utf8_detail {

constexpr bool continues(unsigned char byte) { return (byte & 0xc0) == 0x80; }

inline Character broken() { return {kReplacement, 1, false}; }

}  // namespace utf8_detail

// Returns the character at text[at]; at < text.size().
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

// Returns the beginning of the character before `at` > 0. An invalid byte is a character.
inline size_t character_before(std::string_view text, size_t at) {
  size_t first = at - 1;
  for (size_t back = 1; back <= 4 && back <= at; ++back) {
    if (utf8_detail::continues(static_cast<unsigned char>(text[at - back]))) continue;
    if (character_at(text, at - back).length == static_cast<int32_t>(back)) first = at - back;
    break;
  }
  return first;
}

// Returns the length of the longest prefix that is valid UTF-8.
size_t valid_prefix(std::string_view text);

void append_utf8(int32_t code, std::string* text);

// GPT-2's byte-level alphabet: a printable character for each byte, such as "Ġ" for a space and "Ċ"
// for a line end.
// "Ġthe" to " the"; nullopt if a character is not in the alphabet.
std::optional<std::string> byte_level_decode(std::string_view characters);
// " the" to "Ġthe".
std::string byte_level_encode(std::string_view bytes);

// Character classes used by pre-tokenizers: a table for all code points, built once from
// unicode_properties.h.
using CharacterClasses = uint16_t;
namespace unicode_class {
constexpr CharacterClasses kLetter = 1;         // \p{L}
constexpr CharacterClasses kNumber = 2;         // \p{N}
constexpr CharacterClasses kSpace = 4;          // \s: White_Space, as in Oniguruma and Rust.
constexpr CharacterClasses kLineEnd = 8;        // [\r\n]; also kSpace.
constexpr CharacterClasses kUpper = 16;         // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
constexpr CharacterClasses kLower = 32;         // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
constexpr CharacterClasses kWord = 64;          // \w in Rust; Oniguruma's has other numbers.
constexpr CharacterClasses kPunctuation = 128;  // \p{P}
constexpr CharacterClasses kSymbol = 256;       // \p{S}
constexpr CharacterClasses kMark = 512;         // \p{M}
// For the pre-tokenizers Digits and Punctuation, which use other versions of Unicode.
constexpr CharacterClasses kStepDigit = 1024;
constexpr CharacterClasses kStepPunctuation = 2048;
}  // namespace unicode_class

class UnicodeClasses {
 public:
  // The only instance, made on first use.
  static const UnicodeClasses& get();

  CharacterClasses of(int32_t code) const { return table_[code]; }
  // Returns the classes of the character at text[at]; sets *length.
  CharacterClasses at(std::string_view text, size_t at, size_t* length) const {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      *length = 1;
      return table_[byte];
    }
    const Character character = character_at(text, at);
    *length = static_cast<size_t>(character.length);
    return table_[character.code];
  }

 private:
  UnicodeClasses();
  const CharacterClasses* table_;
};

// Unicode White_Space, unlike utf8proc's category, which lacks the tab.
bool is_white_space(int32_t code);

}  // namespace tessera
