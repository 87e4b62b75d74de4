// SPDX-License-Identifier: Apache-2.0
// Trains byte-level BPE on counted words, with the merges of BpeTrainer of Hugging Face's
// tokenizers library.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "inputs/tokenizers/word_counts.h"

namespace tessera {

struct ByteBpeOptions {
  int64_t vocab_size = 0;                   // Includes special tokens and 256 bytes.
  int64_t min_frequency = 0;                // Rarer pairs are not merged.
  std::vector<std::string> special_tokens;  // The first ids.
};

struct ByteBpe {
  std::vector<std::string> vocabulary;  // By id, in the byte-level alphabet (unicode.h).
  std::vector<std::pair<int32_t, int32_t>> merges;  // Ids, by rank.
};

// Does not depend on the order of words. The vocabulary is smaller than asked for if no pair is
// left. Frees the counts early.
ByteBpe train_byte_bpe(WordCounts counts, const ByteBpeOptions& options);

}  // namespace tessera
