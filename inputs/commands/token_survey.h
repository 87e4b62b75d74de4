// SPDX-License-Identifier: Apache-2.0
// What is in a split of a token file: every token is read and checked once, in bounded memory.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "inputs/flat_tokens_file.h"

namespace tessera {

struct TokenCount {
  int32_t id = 0;
  int64_t count = 0;
};

struct TokenSurvey {
  int64_t shortest = 0;
  int64_t median = 0;
  int64_t longest = 0;
  int64_t empty = 0;                          // Documents without tokens.
  std::array<int64_t, 64> lengths_by_size{};  // [k]: documents of 2^k to 2^(k+1) - 1 tokens.
  int64_t distinct_ids = 0;
  std::vector<TokenCount> most_frequent;  // At most as many as were asked for.
  int64_t bytes = 0;                      // Of text, if there is a tokenizer.
};

// `tokenizer` may be null. Error if a start mark contradicts seq_starts; `where` begins it.
TokenSurvey survey_tokens(const FlatTokensReader& reader, const Tokenizer* tokenizer,
                          int64_t most_frequent, const std::string& where);

}  // namespace tessera
