// SPDX-License-Identifier: Apache-2.0
// What a user reads who starts an experiment without its data: what is missing, where it was looked
// for, and the commands that end in a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plugins/command_line.h"
#include "plugins/configure.h"

namespace tessera {

// nullopt if nothing is missing, or if the mode reads no data. `devices` are those of the whole
// run: the last command asks for a mesh of them.
std::optional<std::string> missing_data_message(const ConfiguredExperiment& configured,
                                                const CommandLine& line, int64_t devices);

}  // namespace tessera
