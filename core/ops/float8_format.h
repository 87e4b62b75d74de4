// SPDX-License-Identifier: Apache-2.0
// The formats of the 8-bit floats E4M3 and E5M2 (Micikevicius et al., "FP8 formats for deep
// learning", 2022, Table 1), for code that rounds to them, on a GPU too.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

struct Float8Format {
  int digits;        // Bits of the fraction.
  int min_exponent;  // Exponent of the smallest normal number.
  int max_exponent;  // The largest number is 1.75·2^max_exponent.
};
inline constexpr Float8Format kE4M3{.digits = 3, .min_exponent = -6, .max_exponent = 8};
inline constexpr Float8Format kE5M2{.digits = 2, .min_exponent = -14, .max_exponent = 15};
inline constexpr float kLeastAmax = 0x1p-100f;

constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}
constexpr float largest(const Float8Format& format) {
  return 1.75f * power_of_two(format.max_exponent);
}

}  // namespace tessera
