// SPDX-License-Identifier: Apache-2.0
// A device that runs every launch through the reference interpreter, rounding results to their
// dtypes. Slow, but it needs no kernels: it tests planning and execution by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/backend/backend.h"

namespace tessera {

struct ReferenceDeviceOptions {
  int64_t scratch_bytes = 0;  // Asked for by every kernel, and overwritten with rubbish.
  bool may_overwrite = true;  // Whether elementwise results may lie over operands of their type.
};

// Memory comes zeroed, as the interface says.
std::unique_ptr<Device> make_reference_device(const ReferenceDeviceOptions& options = {});

}  // namespace tessera
