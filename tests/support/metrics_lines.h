// SPDX-License-Identifier: Apache-2.0
// Values in a run's metrics.jsonl as text, so that comparisons are exact.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tessera {

// The text of the value of `key` in each line that has it.
std::vector<std::string> values_of(const std::filesystem::path& directory, const std::string& key);
// The values as numbers.
std::vector<double> numbers_of(const std::filesystem::path& directory, const std::string& key);
// Loss by step.
std::map<std::string, std::string> losses_of(const std::filesystem::path& directory);

}  // namespace tessera
