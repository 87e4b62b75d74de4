// SPDX-License-Identifier: Apache-2.0
// Times the collectives of the devices of this process.
#pragma once

#include <cstdint>

#include "tasks/hardware/hardware.h"

namespace tessera {

// Of so many device threads of this process: what a device sends, and what a collective takes that
// sends next to nothing. Each collective is repeated for `seconds`.
DeviceLink measured_link(int64_t devices, int64_t most_bytes, double seconds);

}  // namespace tessera
