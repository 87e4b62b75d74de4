// SPDX-License-Identifier: Apache-2.0
// A device that runs every launch through the reference interpreter, rounding results to their
// dtypes. Slow, but it needs no kernels: it tests planning and execution by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend/backend.h"

namespace tessera {

struct ReferenceDeviceOptions {
  int64_t scratch_bytes = 0;  // Asked for by every kernel, and overwritten with rubbish.
  bool may_overwrite = true;  // Whether elementwise results may lie over operands of their type.
};

// Memory comes zeroed, as the interface says.
std::unique_ptr<Device> make_reference_device(const ReferenceDeviceOptions& options = {});

// Between an array of doubles and the bytes of its dtype (bools one byte, floats rounded).
void encode(DType dtype, const std::vector<double>& values, std::byte* bytes);
std::vector<double> decode(const Type& type, const std::byte* bytes);

}  // namespace tessera
