// SPDX-License-Identifier: Apache-2.0
// NaN without its sign, for numbers that are shown: x86 makes 0/0 the NaN that prints as "-nan".
#pragma once

#include <cmath>
#include <limits>

namespace tessera {

inline double plain_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

}  // namespace tessera
