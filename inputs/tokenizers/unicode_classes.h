// SPDX-License-Identifier: Apache-2.0
// What the patterns of pre-tokenizers ask of a character, as a table of one byte a character that
// is made once from the Unicode data of utf8proc (a megabyte; text touches little of it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "inputs/tokenizers/utf8.h"

namespace tessera {

namespace unicode_class {
constexpr uint8_t kLetter = 1;         // \p{L}
constexpr uint8_t kNumber = 2;         // \p{N}
constexpr uint8_t kSpace = 4;          // \s: White_Space, as Oniguruma and Rust have it.
constexpr uint8_t kLineEnd = 8;        // [\r\n], which are spaces too.
constexpr uint8_t kUpper = 16;         // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
constexpr uint8_t kLower = 32;         // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
constexpr uint8_t kWord = 64;          // \w: letters, marks, decimal digits, connectors.
constexpr uint8_t kPunctuation = 128;  // \p{P}, and ASCII's symbols.
}  // namespace unicode_class

class UnicodeClasses {
 public:
  // The only one, made on first use.
  static const UnicodeClasses& get();

  uint8_t of(int32_t code) const { return table_[code]; }
  // Of the character at text[at]; its length goes to *length.
  uint8_t at(std::string_view text, size_t at, size_t* length) const {
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
  const uint8_t* table_;
};

// White_Space of Unicode. Neither PCRE2's \s (U+180E) nor utf8proc's category (tab) is this.
bool is_white_space(int32_t code);

}  // namespace tessera
