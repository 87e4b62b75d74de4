// SPDX-License-Identifier: Apache-2.0
// --mode=calibrate of runexp: measures this machine (tasks/calibrate) and writes a hardware file.
#pragma once

#include <ostream>

#include "plugins/command_line.h"

namespace tessera {

// Error for a device that is not the CPU, and for a file that exists (without --restart) or cannot
// be written.
void run_calibration(const CommandLine& line, std::ostream& out);

}  // namespace tessera
