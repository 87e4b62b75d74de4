// SPDX-License-Identifier: Apache-2.0
// Finds and opens plugins: one shared library for each family of experiments.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The folder of our own plugins of one kind ("experiments", "transports"): tessera/<kind> beside
// our libraries.
std::filesystem::path own_plugins(std::string_view kind);

// Where plugins are looked for, in order: those given (folders or single libraries), the folders in
// TESSERA_PLUGIN_PATH, and tessera/experiments beside our own libraries. Error for one given that
// does not exist.
std::vector<std::filesystem::path> plugin_path(const std::vector<std::filesystem::path>& given);

// Shared libraries on the path, by folder and name.
std::vector<std::filesystem::path> find_plugins(const std::vector<std::filesystem::path>& path);

// Opens one plugin, once. Error if it is missing, broken, foreign or of another build; what it
// registers is then in plugins/registry.h. It stays open until the process ends.
void load_plugin(const std::filesystem::path& file);

// Opens all of them and returns what went wrong, one line each.
std::vector<std::string> load_plugins(const std::vector<std::filesystem::path>& files);

}  // namespace tessera
