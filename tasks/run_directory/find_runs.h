// SPDX-License-Identifier: Apache-2.0
// Directories of runs near a path that a user gave, for messages.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

// Whether the directory has hparams.toml or metrics.jsonl.
bool is_run(const std::filesystem::path& directory);

// Runs in this directory and in its folders, at most `most`.
std::vector<std::string> runs_below(const std::filesystem::path& directory, size_t most);

// "; did you mean 'char_lm'?" for a run beside `directory` whose name is near; or "".
std::string did_you_mean_run(const std::filesystem::path& directory);

}  // namespace tessera
