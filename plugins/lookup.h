// SPDX-License-Identifier: Apache-2.0
// From what --exp and --device name to what is registered; loads the plugins that may have it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/executor/device_kinds.h"
#include "plugins/registry.h"

namespace tessera {

// The entry called `name`, or the only one whose dotted name ends in it. Error with near names, or
// with all that match if there are several.
ExperimentEntry match_experiment(std::string_view name,
                                 const std::vector<ExperimentEntry>& entries);

// Loads what is needed to find the experiment: its family's plugin if the name begins with one,
// else all of them.
ExperimentEntry find_experiment(std::string_view name,
                                const std::vector<std::filesystem::path>& path);

// The kind of device called `name`. One that is not registered is looked for in the plugin
// NAME.so, in the folders given and in tessera/devices beside our libraries. Error with the nearest
// name, and all names, if there is none.
const DeviceKind& find_device(const std::string& name,
                              const std::vector<std::filesystem::path>& folders);

// Those that are registered or have a plugin in tessera/devices, in order of name.
std::vector<std::string> known_device_kinds();

}  // namespace tessera
