// SPDX-License-Identifier: Apache-2.0
// Byte-pair tokenizers with the steps of Hugging Face's tokenizers library (added tokens,
// normalizer, pre-tokenizer, merges) and its ids. Bytes that are not UTF-8 are split as U+FFFD and
// encoded as themselves, if the vocabulary has byte tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inputs/tokenizers/bpe_model.h"
#include "inputs/tokenizers/normalizer.h"
#include "inputs/tokenizers/pre_tokenizer.h"
#include "inputs/tokenizers/tokenizer.h"

namespace tessera {

// A text such as "<|endoftext|>" or a run of spaces that is always one token. Added tokens are
// found before the text is split into words.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool is_special = false;      // Decodes to no text; encoded only on request.
  bool is_single_word = false;  // Only if no letter or digit is adjacent.
  bool takes_left_space = false;
  bool takes_right_space = false;
  bool is_normalized = false;  // Matched in the normalized text.
};

// The member "decoder" of a tokenizer.json: how tokens are written in the vocabulary, such as
// "▁the" for " the" or <0x0A> for a line end.
struct TokenDecoder {
  std::vector<std::pair<std::string, std::string>>
      replacements;              // Applied to each token, in order.
  bool has_byte_tokens = false;  // <0x0A> is a byte.
  std::string end_suffix;        // Becomes a space.
  char strip = ' ';
  int64_t strip_left = 0;   // Removed from the beginning of the text, up to this many times,
  int64_t strip_right = 0;  // and from its end.

  // Returns the bytes of a token that is not written in the byte-level alphabet.
  std::string bytes_of(std::string_view token) const;
  // Applies the strips to a whole text.
  std::string stripped(std::string text) const;
};

// The parts of a byte-pair tokenizer.
struct BpeParts {
  std::string name;
  std::string definition;
  BpeDefinition model;
  std::optional<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::vector<AddedToken> added;
  TokenDecoder decoder;
  std::optional<int32_t> start_id;
  std::optional<int32_t> end_id;
};
std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts);

}  // namespace tessera
