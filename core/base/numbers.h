// SPDX-License-Identifier: Apache-2.0
// Numbers as messages show them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tessera {

// The positive multiple of `step` nearest to `size`: what a message suggests for a size that `step`
// does not divide.
inline int64_t nearest_multiple(int64_t size, int64_t step) {
  return std::max<int64_t>(1, (size + step / 2) / step) * step;
}

// `value`, or for any NaN the one without a sign bit: on x86, 0/0 is a NaN that prints as "-nan".
inline double plain_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

}  // namespace tessera
