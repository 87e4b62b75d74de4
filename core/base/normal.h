// SPDX-License-Identifier: Apache-2.0
// Standard normals from random bits by Box and Muller's formula, in f32, with logarithm, sine and
// cosine as polynomials (those of Moshier's Cephes): the same bits on every machine, if compiled
// without fused multiply-add. Inline, so that loops over it vectorise.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tessera {

// ln x of a normal number x > 0.
inline float natural_log(float x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3u;  // x = 2^e·m, with m from √½ to √2.
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int32_t exponent = static_cast<int32_t>(bits - kRootHalf) >> 23;
  const float e = static_cast<float>(exponent);
  const float t = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * t - 1.1514610310e-1f;
  p = p * t + 1.1676998740e-1f;
  p = p * t - 1.2420140846e-1f;
  p = p * t + 1.4249322787e-1f;
  p = p * t - 1.6668057665e-1f;
  p = p * t + 2.0000714765e-1f;
  p = p * t - 2.4999993993e-1f;
  p = p * t + 3.3333331174e-1f;
  const float square = t * t;
  float rest = p * t * square;
  rest = rest - 2.12194440e-4f * e;  // ln 2 = 0.693359375 - 2.12194440e-4.
  rest = rest - 0.5f * square;
  return t + rest + 0.693359375f * e;
}

struct NormalPair {
  float first = 0.0f, second = 0.0f;
};

// The upper 24 bits of each word are used: one for the radius, one for the angle.
inline NormalPair box_muller(uint32_t radius_bits, uint32_t angle_bits) {
  const float u = static_cast<float>(radius_bits >> 8) * 0x1p-24f;
  const float radius = std::sqrt(-2.0f * natural_log(1.0f - u));

  // The angle as a quarter turn (0 … 4, 4 being 0 again) and a rest of at most an eighth.
  const int32_t turn = static_cast<int32_t>(angle_bits >> 8);  // Of 2^24.
  const int32_t quarter = (turn + (1 << 21)) >> 22;
  const float x = static_cast<float>(turn - (quarter << 22)) * (1.57079633f * 0x1p-22f);
  const float z = x * x;
  float s = -1.9515295891e-4f;
  s = s * z + 8.3321608736e-3f;
  s = s * z - 1.6666654611e-1f;
  const float sine = s * z * x + x;
  float c = 2.443315711809948e-5f;
  c = c * z - 1.388731625493765e-3f;
  c = c * z + 4.166664568298827e-2f;
  const float cosine = c * z * z - 0.5f * z + 1.0f;

  const bool swap = (quarter & 1) != 0;
  const float near_cosine = swap ? sine : cosine, near_sine = swap ? cosine : sine;
  const float cosine_sign = ((quarter + 1) & 2) != 0 ? -1.0f : 1.0f;
  const float sine_sign = (quarter & 2) != 0 ? -1.0f : 1.0f;
  return {radius * (near_cosine * cosine_sign), radius * (near_sine * sine_sign)};
}

}  // namespace tessera
