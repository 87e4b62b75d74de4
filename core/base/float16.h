// SPDX-License-Identifier: Apache-2.0
// IEEE half precision as a storage type, which other tools' files hold. No tensor of ours has it.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

// Converting from f32 rounds to nearest even and beyond 65504 to infinity; NaN stays NaN. To f32 it
// is exact.
struct Float16 {
  static constexpr float kMax = 65504.0f;
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (word >> 16) & 0x8000u;
    const uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
      bits = static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    } else if (magnitude >= 0x477ff000u) {  // Nearer to infinity than to the largest.
      bits = static_cast<uint16_t>(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {  // Below 2^-14: subnormal, in units of 2^-24.
      const float units = std::bit_cast<float>(magnitude) * 16777216.0f;
      auto whole = static_cast<uint32_t>(units);
      const float rest = units - static_cast<float>(whole);
      if (rest > 0.5f || (rest == 0.5f && (whole & 1u) != 0)) ++whole;
      bits = static_cast<uint16_t>(sign | whole);
    } else {
      const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
      bits = static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
    }
  }
  explicit operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
    if (exponent == 0) {
      const float magnitude = static_cast<float>(fraction) / 16777216.0f;
      return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
    }
    if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  }
  bool operator==(const Float16&) const = default;
};

}  // namespace tessera
