// SPDX-License-Identifier: Apache-2.0
// Finds the missing files of recipes whose data must be downloaded, and the commands that make
// those files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/task/config/experiment.h"

namespace tessera {

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
