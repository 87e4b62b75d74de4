// SPDX-License-Identifier: Apache-2.0
// Directories of runs at and near a path that a user gave.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

// Whether the directory has hparams.toml or metrics.jsonl.
bool is_run(const std::filesystem::path& directory);

// Runs in this directory and, with more `levels`, in its folders, by name; at most `most`.
std::vector<std::filesystem::path> runs_below(const std::filesystem::path& directory, size_t most,
                                              int levels = 2);

// The runs directly in a folder, such as that of a sweep, by name. The directory itself if it is a
// run or has none.
std::vector<std::filesystem::path> runs_of(const std::filesystem::path& directory);

// "; did you mean 'char_lm'?" for a run beside `directory` whose name is near; or "".
std::string did_you_mean_run(const std::filesystem::path& directory);

}  // namespace tessera
