// SPDX-License-Identifier: Apache-2.0
// Integer division that rounds up, and the next multiple of a number; for positive divisors.
#pragma once

#include <cstdint>

namespace tessera {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t rounded_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace tessera
