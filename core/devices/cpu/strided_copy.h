// SPDX-License-Identifier: Apache-2.0
// Copies and fills of strided arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/devices/cpu/thread_pool.h"
#include "core/devices/iteration_space.h"

namespace tessera {

// Copies between strided arrays on all threads; transposes are blocked for the cache.
// space.operands[0] are the strides of the source, [1] those of the destination; `from` and `to`
// point at their first elements.
void strided_copy(const IterationSpace& space, int64_t element_bytes, const std::byte* from,
                  std::byte* to, ThreadPool& pool);

// Fills the destination, whose strides are space.operands[0], with the element `bits`.
void strided_fill(const IterationSpace& space, int64_t element_bytes, uint64_t bits, std::byte* to,
                  ThreadPool& pool);

}  // namespace tessera
