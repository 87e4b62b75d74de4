// SPDX-License-Identifier: Apache-2.0
// What one member of a collective sends or receives, as rows of an array.
#pragma once

#include <cstdint>

#include "core/base/region.h"

namespace tessera::cuda {

// The part of an array that one member of a collective sends or receives: rows at one distance.
struct PartRows {
  int64_t begin = 0, count = 0, bytes = 0, pitch = 0;  // In bytes.

  bool is_contiguous() const { return count <= 1; }
};

PartRows rows_of(const Subarray& part);

}  // namespace tessera::cuda
