// SPDX-License-Identifier: Apache-2.0
// Arithmetic of GPUs that the host does not have: narrow floats, rounding modes, fused products.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tessera::virtual_gpu {

enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp, kAway };

inline constexpr uint32_t kNan = 0x7fffffff;

inline float float_of(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
inline double double_of(uint64_t bits) { return std::bit_cast<double>(bits); }
// A NaN result has one representation.
inline uint64_t bits_of(float x) { return x != x ? kNan : std::bit_cast<uint32_t>(x); }
inline uint64_t bits_of(double x) {
  return x != x ? uint64_t{0x7fffffffffffffff} : std::bit_cast<uint64_t>(x);
}

inline float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
template <typename T>
T saturate(T x) {
  return x > T(0) ? (x < T(1) ? x : T(1)) : T(0);  // NaN: 0.
}

// a * b + c rounded to odd, where a * b is exact: rounding the result once more to a type of less
// than 52 bits is correct (Boldo and Melquiond, 2008).
inline double fused(double a, double b, double c) {
  const double product = a * b, sum = product + c;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (c - part);
  const uint64_t bits = std::bit_cast<uint64_t>(sum);
  const bool adjust = error != 0 && std::fabs(sum) < INFINITY && !(bits & 1);
  const bool outward = (error > 0) == (sum > 0);
  return adjust ? std::bit_cast<double>(outward ? bits + 1 : bits - 1) : sum;
}
inline float fma_of(float a, float b, float c) {
#ifdef __FMA__
  return std::fma(a, b, c);
#else
  return static_cast<float>(fused(a, b, c));
#endif
}
inline double fma_of(double a, double b, double c) { return std::fma(a, b, c); }

// Rounds an exact or odd-rounded number to f32.
inline float directed(double x, Rounding rounding) {
  const float nearest = static_cast<float>(x);
  const bool above = nearest > x, below = nearest < x;
  const bool down = rounding == Rounding::kDown || (rounding == Rounding::kZero && x > 0);
  const bool up = rounding == Rounding::kUp || (rounding == Rounding::kZero && x < 0);
  if (down && above) return std::nextafter(nearest, -INFINITY);
  return up && below ? std::nextafter(nearest, INFINITY) : nearest;
}

double to_integer(double x, Rounding rounding);
// Rounds to a float of 1 + exponent + mantissa bits (f16: 5 + 10, bf16: 8 + 7, f32: 8 + 23).
uint32_t narrow(double x, int exponent_bits, int mantissa_bits, Rounding rounding);
double widen_half(uint16_t bits);

inline double widen_bf16(uint16_t bits) { return float_of(uint64_t{bits} << 16); }
inline uint16_t bf16_of(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return x != x ? 0x7fff : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace tessera::virtual_gpu
