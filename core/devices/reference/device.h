// SPDX-License-Identifier: Apache-2.0
// The kind of device "reference": it runs every launch with the reference interpreter and rounds
// results to their dtypes. It has no kernels of its own and is very slow. `--mode=replay` compares
// kernels with it, and tests use it to test planning and execution in isolation.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/devices/device.h"
#include "core/devices/reference/kernel.h"

namespace tessera {

// Makes a device. Allocated memory is zeroed, as the interface requires.
std::unique_ptr<Device> make_reference_device(const ReferenceDeviceOptions& options = {});

// Makes devices for DeviceKind::make_devices; each computes on its caller's thread.
std::vector<std::unique_ptr<Device>> make_reference_devices(int64_t count, int threads,
                                                            int local_rank);

}  // namespace tessera
