// SPDX-License-Identifier: Apache-2.0
// A device that is not there, for plans of programs that would run on it.
#pragma once

#include <memory>

#include "core/devices/device.h"
#include "tasks/planner/hardware/hardware.h"

namespace tessera {

// Makes a device that can only be planned for. For a CPU its kernels are those of the CPU device;
// for others it has a kernel for every op, as CUDA has, and their scratch memory is not known.
std::unique_ptr<Device> make_planned_device(const Hardware& hardware);

}  // namespace tessera
