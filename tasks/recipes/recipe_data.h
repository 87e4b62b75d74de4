// SPDX-License-Identifier: Apache-2.0
// The data of recipes: generated sequences in their place, and for data that must be downloaded the
// missing files, with the commands that make them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/synthetic_input.h"
#include "tasks/task/config/experiment.h"

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

// A file of a recipe's data, or a pattern of several (inputs/readers/text_files.h).
struct RecipeFile {
  std::string path;
  std::string knob;                   // The experiment's knob that sets the path.
  std::vector<std::string> commands;  // Shell commands that make it.
};

// A tokenizer that `flat_tokens train` makes of a text, and the token file that `flat_tokens build`
// makes of one. `options`: further flags.
RecipeFile trained_tokenizer(const std::string& path, int64_t vocab_size, const std::string& text);
RecipeFile built_tokens(const std::string& path, const std::string& tokenizer,
                        const std::vector<std::string>& options, const std::string& text);

// Whether the input reads this path as a HParams of this type: not one that --set has put in place
// of the recipe's.
template <typename HParams>
bool reads(const Template<BaseInput>& input, std::string_view path) {
  return input.holds<HParams>() && input.as<HParams>().path.get() == path;
}

// What MissingData says about the files `read` by a run and their `sources`, in the order in which
// they are made: the first missing file of `read`, and the commands of every missing file, each
// command once, preceded by commands that make missing folders. nullopt if no file of `read` is
// missing: then sources are not needed.
std::optional<MissingData> missing_files(const std::vector<RecipeFile>& sources,
                                         const std::vector<RecipeFile>& read, std::string advice);

}  // namespace tessera
