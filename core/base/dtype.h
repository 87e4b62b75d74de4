// SPDX-License-Identifier: Apache-2.0
// Element types of tensors, and 16-bit floats as storage types: arithmetic on them is done in f32.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace tessera {

enum class DType { kF64, kF32, kBF16, kI32, kU32, kBool };

std::string_view dtype_name(DType dtype);  // "f32", "bf16", "i32", "bool", …
int64_t dtype_bytes(DType dtype);          // A bool is one byte, 0 or 1.
bool is_floating(DType dtype);

// Accepts the names above and those of PyTorch, NumPy and JAX. Error with the nearest name.
DType parse_dtype(std::string_view name);
// Returns the name used here for another tool's: "bf16" for "bfloat16", "f32" for "float32", "f16"
// for "half". Other text is returned unchanged.
std::string_view short_dtype_name(std::string_view name);

// The upper half of an f32. Conversion rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    uint32_t word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((word >> 16) | 0x0040u);  // Quiet the NaN.
    } else {
      bits = static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  bool operator==(const BFloat16&) const = default;
};

// IEEE half precision, for files of other tools; tensors never have it. Conversion from f32 rounds
// to nearest even, and to infinity beyond 65504; NaN stays NaN. Conversion to f32 is exact.
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
    } else if (magnitude >= 0x477ff000u) {  // Rounds to infinity.
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

// Returns the bits of `value` as an element of `dtype`, in the low bytes.
uint64_t element_bits(double value, DType dtype);

}  // namespace tessera
