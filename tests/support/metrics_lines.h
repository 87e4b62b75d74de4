// SPDX-License-Identifier: Apache-2.0
// What a run's metrics.jsonl says, as text, so that equal means equal to the last bit.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tessera {

// The value of `key` in each line that has it, as it stands there.
std::vector<std::string> values_of(const std::filesystem::path& directory, const std::string& key);
// Loss by step.
std::map<std::string, std::string> losses_of(const std::filesystem::path& directory);

}  // namespace tessera
