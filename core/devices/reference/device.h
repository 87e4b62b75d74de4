// SPDX-License-Identifier: Apache-2.0
// The kind of device "reference": it runs every launch with the reference interpreter and rounds
// results to their dtypes. It has no kernels of its own and is very slow. `--mode=replay` compares
// kernels with it, and tests use it to test planning and execution in isolation. CPU devices run
// launches with f64 elements by its kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/devices/device.h"

namespace tessera {

struct ReferenceDeviceOptions {
  int64_t scratch_bytes = 0;  // Requested by every kernel, and overwritten with arbitrary values.
  bool may_overwrite = true;  // Whether an elementwise result may overwrite an operand of its type.
};

// Makes a device. Allocated memory is zeroed, as the interface requires.
std::unique_ptr<Device> make_reference_device(const ReferenceDeviceOptions& options = {});

// Makes devices for DeviceKind::make_devices; each computes on its caller's thread.
std::vector<std::unique_ptr<Device>> make_reference_devices(int64_t count, int threads,
                                                            int local_rank);

}  // namespace tessera
