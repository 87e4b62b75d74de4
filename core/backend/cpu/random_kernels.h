// SPDX-License-Identifier: Apache-2.0
// Vector loops that draw uniform numbers of a stream (core/base/random.h) and drop elements by
// them.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace tessera {

// A stream at one step: element i is word i % 4 of the Philox block at counter i / 4.
struct RandomStream {
  uint64_t key = 0;
  uint64_t step = 0;
};

// out[i - begin] is element i of the stream, for i in [begin, end).
void uniform_elements(const RandomStream& stream, int64_t begin, int64_t end, float* out);

// y[i] = uniform(first + i) < keep ? x[i] / keep : 0 for i in [begin, end); y may be x.
void dropout_elements(const RandomStream& stream, int64_t first, float keep, DType dtype,
                      const void* x, void* y, int64_t begin, int64_t end);

}  // namespace tessera
