// SPDX-License-Identifier: Apache-2.0
// The message for a user who starts an experiment without its data: what is missing, where it was
// expected, and the commands that lead to a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plugins/command_line.h"
#include "plugins/configure.h"

namespace tessera {

// nullopt if nothing is missing or the mode reads no data. `devices`: of the whole run; the last
// command asks for a mesh of that size.
std::optional<std::string> missing_data_message(const ConfiguredExperiment& configured,
                                                const CommandLine& line, int64_t devices);

}  // namespace tessera
