// SPDX-License-Identifier: Apache-2.0
// What messages suggest in the place of a size that does not divide.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera {

// The multiple of `step` nearest to `size`, but not zero.
inline int64_t nearest_multiple(int64_t size, int64_t step) {
  return std::max<int64_t>(1, (size + step / 2) / step) * step;
}

}  // namespace tessera
