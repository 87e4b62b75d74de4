// SPDX-License-Identifier: Apache-2.0
#include "tests/virtual_gpu/numbers.h"

#include <algorithm>

namespace tessera::virtual_gpu {
double to_integer(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest:
      return std::nearbyint(x);
    case Rounding::kZero:
      return std::trunc(x);
    case Rounding::kDown:
      return std::floor(x);
    case Rounding::kUp:
      return std::ceil(x);
    case Rounding::kAway:
      return std::round(x);
  }
  return x;
}

uint32_t narrow(double x, int exponent_bits, int mantissa_bits, Rounding rounding) {
  const uint32_t sign = std::signbit(x) ? 1u << (exponent_bits + mantissa_bits) : 0;
  const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  if (x != x) return (1u << (exponent_bits + mantissa_bits)) - 1;
  if (std::isinf(x)) return sign | infinity;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  // The exponent of the last place; denormal numbers share that of the smallest normal one.
  const int exponent = x == 0 ? 1 - bias : std::max(std::ilogb(x), 1 - bias);
  const double places = std::fabs(to_integer(std::ldexp(x, mantissa_bits - exponent), rounding));
  const double value = std::ldexp(places, exponent - mantissa_bits);
  if (value >= std::ldexp(1.0, bias + 1)) {
    const bool to_largest = rounding == Rounding::kZero || (rounding == Rounding::kDown && !sign) ||
                            (rounding == Rounding::kUp && sign);
    return sign | (to_largest ? infinity - 1 : infinity);
  }
  // Adding carries from the mantissa into the exponent.
  const auto whole = static_cast<uint32_t>(places);
  const uint32_t hidden = 1u << mantissa_bits;
  if (whole < hidden) return sign | whole;
  return sign | ((static_cast<uint32_t>(exponent + bias) << mantissa_bits) + (whole - hidden));
}

double widen_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

}  // namespace tessera::virtual_gpu
