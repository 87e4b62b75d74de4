// SPDX-License-Identifier: Apache-2.0
// Trains byte-level BPE on counted words, with the merges of BpeTrainer of Hugging Face's
// tokenizers library.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "inputs/tokenizers/word_scanner.h"

namespace tessera {

struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};
using WordCounts = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;

struct ByteBpeOptions {
  int64_t vocab_size = 0;                   // Includes special tokens and 256 bytes.
  int64_t min_frequency = 0;                // Rarer pairs are not merged.
  std::vector<std::string> special_tokens;  // The first ids.
};

// The vocabulary is smaller than asked for if no pair is left.
struct ByteBpe {
  std::vector<std::string> vocabulary;  // By id, in the byte-level alphabet (unicode.h).
  std::vector<uint64_t> merges;         // By rank: the left token's id * 2^32 + the right one's.
};

// Does not depend on the order of words. Frees the counts early.
ByteBpe train_byte_bpe(WordCounts counts, const ByteBpeOptions& options);

// Returns the tokenizer.json that the library would write.
std::string tokenizer_json(const ByteBpe& model, const std::vector<std::string>& special_tokens,
                           WordPattern pattern);

}  // namespace tessera
