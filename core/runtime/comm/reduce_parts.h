// SPDX-License-Identifier: Apache-2.0
// Sums and maxima of several devices' arrays, in one fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/dtype.h"
#include "core/runtime/comm/collective_info.h"

namespace tessera {

// result[i] = sources[0][i] + sources[1][i] + …, as a binary tree over the sources whose left part
// is the largest power of two: groups of two, four, … neighbours can be summed beforehand without
// changing an f32's bits. bf16 is summed in f32 and rounded once. `result` may be one of the
// sources, or lie apart from all. Error if elements of this dtype cannot be reduced.
void reduce_parts(Reduction reduction, DType dtype, std::span<const std::byte* const> sources,
                  std::byte* result, int64_t elements);

}  // namespace tessera
