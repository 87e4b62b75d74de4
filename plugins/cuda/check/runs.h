// SPDX-License-Identifier: Apache-2.0
// Runs of runexp inside the process of an item, in folders below the report's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/io/json.h"

namespace tessera::cuda {

// Runs runexp with these arguments; its output is the item's. Error with its message if it fails.
void run(const std::filesystem::path& directory, std::vector<std::string> arguments);

// "--set" before each of them.
std::vector<std::string> settings(const std::vector<std::string>& values);

// The training lines of metrics.jsonl by step.
std::map<int64_t, Json> training_lines(const std::filesystem::path& directory);

}  // namespace tessera::cuda
