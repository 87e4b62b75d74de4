// SPDX-License-Identifier: Apache-2.0
// The bandwidth that kernels reach if memory limits them: from the measured curve of copies of the
// device, or as a share of the memory's bandwidth.
#pragma once

#include "tasks/planner/hardware/hardware.h"

namespace tessera {

// Bandwidth in bytes per second: with large operands, and with operands and results of so many
// bytes.
double reachable_bandwidth(const Hardware& hardware);
double reachable_bandwidth(const Hardware& hardware, double bytes);

}  // namespace tessera
