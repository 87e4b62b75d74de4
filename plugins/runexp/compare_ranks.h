// SPDX-License-Identifier: Apache-2.0
// Whether all processes of a run were started with the same flags, configuration and code. If not,
// each would compute a part of another step. What a host may have in another place is not compared:
// the folders of data, plugins and the run, and the number of threads.
#pragma once

#include <vector>

#include "core/flags/flags.h"
#include "core/runtime/comm/process_group.h"
#include "plugins/configure.h"

namespace tessera {

// Collective calls. Error, the same in all processes, that names the first process that differs
// from process 0, and the flag or field.
void compare_flags(const std::vector<GivenFlag>& given, ProcessGroup& processes);
void compare_configurations(const ConfiguredExperiment& configured, ProcessGroup& processes);

}  // namespace tessera
