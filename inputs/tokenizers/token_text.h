// SPDX-License-Identifier: Apache-2.0
// What token ids are as text: the bytes of each, and what a decoder does to them together.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.h"

namespace tessera {

struct TokenText {
  enum class Kind {
    kAbsent,   // A gap in the ids.
    kText,     // Stands for its bytes.
    kSpecial,  // Gives no text.
  };
  Kind kind = Kind::kAbsent;
  std::string bytes;
};

// Of tokenizer.json's member "decoder", as far as tokens are written otherwise than as bytes:
// "▁the" for " the", <0x0A> for a line end.
struct TokenDecoder {
  std::vector<std::pair<std::string, std::string>> replacements;  // In each token, in order.
  bool has_byte_tokens = false;                                   // <0x0A> is a byte.
  std::string end_suffix;                                         // Becomes a space.
  char strip = ' ';
  int64_t strip_left = 0;   // So many of `strip` at the beginning of the whole.
  int64_t strip_right = 0;  // And at its end.

  // The bytes of one token of a vocabulary that is not of bytes.
  std::string bytes_of(std::string_view token) const;
  // What is left of the whole.
  std::string stripped(std::string text) const;
};

// Error that names what is not supported. Null is a decoder too: tokens as they are.
TokenDecoder make_token_decoder(const Json& json);

}  // namespace tessera
