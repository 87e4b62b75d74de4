// SPDX-License-Identifier: Apache-2.0
// Finds and opens plugins: one shared library for each family of experiments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/registry.h"
#include "tasks/run/run_setting.h"

namespace tessera {

// The folder of our own plugins of a kind ("experiments", "transports"), or of the hardware files
// ("hardware"): tessera/<kind> beside our libraries.
std::filesystem::path own_plugins(std::string_view kind);

// The search path for plugins: the given folders and libraries, the folders in TESSERA_PLUGIN_PATH,
// and tessera/experiments beside our libraries. Error for a given path that does not exist.
std::vector<std::filesystem::path> plugin_path(const std::vector<std::filesystem::path>& given);

// The shared libraries on the path, sorted by folder and name.
std::vector<std::filesystem::path> find_plugins(const std::vector<std::filesystem::path>& path);

// Loads one plugin, once; it is never unloaded. Error if it is missing, damaged, not a plugin, or
// of another build. plugins/registry.h then has what it registers.
void load_plugin(const std::filesystem::path& file);

struct LoadedPlugin {
  std::filesystem::path file;  // Canonical.
  uint32_t checksum = 0;       // CRC-32C of its bytes.
};
std::vector<LoadedPlugin> loaded_plugins();  // Sorted by file.

// Loads all of them and returns the errors, one line each.
std::vector<std::string> load_plugins(const std::vector<std::filesystem::path>& files);

// The build stamp of this program: "0.1.0, interface 3f2a9c1d04b7, g++ 12.2.0". A plugin compiled
// with other headers or another compiler would misread our objects, so load_plugin rejects a plugin
// of another stamp before its code runs.
std::string_view build_stamp();

// The code of a run, as its checkpoints and its log name it: this build, the loaded plugins (among
// our own only the experiment's) and the git revision of the repository that holds the experiment's
// plugin.
CodeStamp code_stamp(const ExperimentEntry& entry);

}  // namespace tessera
