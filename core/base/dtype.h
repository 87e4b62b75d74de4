// SPDX-License-Identifier: Apache-2.0
// Element types of tensors, and bfloat16 as a storage type. Arithmetic on bf16 is done in f32.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace tessera {

enum class DType { kF64, kF32, kBF16, kI32, kU32, kBool };

std::string_view dtype_name(DType dtype);  // "f32", "bf16", "i32", "bool", …
DType parse_dtype(std::string_view name);  // Error with the nearest name.
int64_t dtype_bytes(DType dtype);          // bool is one byte, 0 or 1.
bool is_floating(DType dtype);

// The upper half of an f32. Converting rounds to nearest even; NaN stays NaN.
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

}  // namespace tessera
