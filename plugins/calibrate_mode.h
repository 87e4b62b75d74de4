// SPDX-License-Identifier: Apache-2.0
// --mode=calibrate of runexp: measures this machine (tasks/calibrate) and writes a hardware file.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "plugins/command_line.h"

namespace tessera {

// The flags that the mode reads, beside --mode.
const std::vector<std::string>& calibrate_flags();

// Error for a device that is not the CPU, and for a file that exists (without --restart) or cannot
// be written.
void run_calibration(const CommandLine& line, std::ostream& out);

}  // namespace tessera
