// SPDX-License-Identifier: Apache-2.0
// Times the collectives of the devices of this process.
#pragma once

#include <cstdint>

#include "core/graph/op.h"
#include "tasks/hardware/hardware.h"

namespace tessera {

struct TimedCollective {
  double seconds = 0.0;  // The median.
  double sent = 0.0;     // Bytes that each device sends.
};

// The all_gather, reduce_scatter or all_reduce of f32 whose longer array has so many bytes, by so
// many device threads of this process, repeated for `seconds`.
TimedCollective timed_collective(const OpDef& op, int64_t devices, int64_t bytes, double seconds);

// Of so many device threads of this process: what a device sends, and what a collective takes that
// sends next to nothing. Each collective is repeated for `seconds`.
DeviceLink measured_link(int64_t devices, int64_t most_bytes, double seconds);

}  // namespace tessera
