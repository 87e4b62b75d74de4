// SPDX-License-Identifier: Apache-2.0
// From what --exp says to one registered experiment.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace tessera
