// SPDX-License-Identifier: Apache-2.0
// --report, --compare and --watch, which read directories of runs and know no experiment.
#pragma once

#include <ostream>

#include "plugins/command_line.h"

namespace tessera {

// Writes a page, or serves one until Ctrl-C. Error if a directory is not that of a run.
void show_runs(const CommandLine& line, std::ostream& out);

}  // namespace tessera
