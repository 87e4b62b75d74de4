// SPDX-License-Identifier: Apache-2.0
// Finds the experiment of --exp and the device kind of --device; loads the plugins that may have
// them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/executor/device_kinds.h"
#include "plugins/registry.h"

namespace tessera {

// The experiment called `name`, or the only one whose dotted name ends in it. Loads the plugins
// that the user names, and those of our own that are needed to find it: its family's if the name
// begins with one, else all. Error with near names, or with all matches if there are several.
ExperimentEntry find_experiment(std::string_view name,
                                const std::vector<std::filesystem::path>& path);

// " (not loaded: …)" with the errors of plugins that the user names, which may have had a class
// that is unknown; or "".
std::string plugins_not_loaded(const std::vector<std::filesystem::path>& path);

// "c4" of "c4.Spmd1B".
std::string family_of(std::string_view experiment);

// The kind of device called `name`. If it is not registered, the plugin NAME.so is loaded from the
// given folders or from tessera/devices beside our libraries. Error with the nearest name and all
// names if it is not found; `flag` is what the user wrote before the name.
const DeviceKind& find_device(const std::string& name,
                              const std::vector<std::filesystem::path>& path,
                              std::string_view flag = "--device=");

// Kinds that are registered or have a plugin in tessera/devices, sorted.
std::vector<std::string> known_device_kinds();

}  // namespace tessera
