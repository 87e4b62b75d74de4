// SPDX-License-Identifier: Apache-2.0
// The data of recipes that can also train on generated sequences.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "inputs/synthetic_input.h"

namespace tessera {

enum class RecipeData {
  kFlatTokens,  // The file at flat_tokens_path.
  kSynthetic    // Generated sequences; needs no file.
};

// Returns generated sequences for the split "train" or "validation", which have different seeds.
// Evaluation ends after 8 batches. Sizes may be unset, to be inherited.
inline SyntheticInput::HParams generated_split(std::string_view split, int64_t seed,
                                               const Required<int64_t>& global_batch_size = {},
                                               const Required<int64_t>& seq_len = {}) {
  const bool is_train = split == "train";
  return {.name = std::string(split),
          .global_batch_size = global_batch_size,
          .seq_len = seq_len,
          .num_batches = is_train ? -1 : 8,
          .seed = is_train ? seed : seed + 1};
}

}  // namespace tessera
