// SPDX-License-Identifier: Apache-2.0
// A device that runs every launch with the reference interpreter and rounds results to their
// dtypes. It needs no kernels, so it tests planning and execution in isolation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/backend/backend.h"

namespace tessera {

struct ReferenceDeviceOptions {
  int64_t scratch_bytes = 0;  // Requested by every kernel, and overwritten with arbitrary values.
  bool may_overwrite = true;  // Whether an elementwise result may overwrite an operand of its type.
};

// Allocated memory is zeroed, as the interface requires.
std::unique_ptr<Device> make_reference_device(const ReferenceDeviceOptions& options = {});

}  // namespace tessera
