// SPDX-License-Identifier: Apache-2.0
// Element types, and rounding to 16-bit floats.
#include "core/base/dtype.h"

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

float rounded(float value) { return static_cast<float>(BFloat16(value)); }

TEST_CASE("Dtypes read, print and have sizes") {
  for (const DType dtype :
       {DType::kF64, DType::kF32, DType::kBF16, DType::kI32, DType::kU32, DType::kBool}) {
    REQUIRE(parse_dtype(dtype_name(dtype)) == dtype);
  }
  REQUIRE(parse_dtype("bfloat16") == DType::kBF16);
  REQUIRE(parse_dtype("float32") == DType::kF32);
  REQUIRE(parse_dtype("int32") == DType::kI32);
  for (const char* name : {"fp16", "float16", "f16", "half"})
    REQUIRE(error_of([&] { parse_dtype(name); }) ==
            fmt::format("dtype '{}': 16-bit IEEE floats are not supported; use bf16, which has the "
                        "same size and the range of f32",
                        name));
  REQUIRE(dtype_bytes(DType::kBF16) == 2);
  REQUIRE(dtype_bytes(DType::kBool) == 1);
  REQUIRE(is_floating(DType::kBF16));
  REQUIRE_FALSE(is_floating(DType::kU32));
  REQUIRE(error_of([] { parse_dtype("bf61"); }) ==
          "no dtype 'bf61'; did you mean 'bf16'? (expected f64, f32, bf16, i32, u32 or bool)");
}

TEST_CASE("bfloat16 rounds to nearest, ties to even") {
  REQUIRE(rounded(1.0f) == 1.0f);
  // Seven stored bits: the step after 1 is 2^-7.
  REQUIRE(rounded(1.0f + 0x1p-8f) == 1.0f);                       // A tie, to the even 1.
  REQUIRE(rounded(1.0f + 3 * 0x1p-8f) == 1.0f + 2 * 0x1p-7f);     // A tie, up to the even.
  REQUIRE(rounded(1.0f + 0x1p-8f + 0x1p-20f) == 1.0f + 0x1p-7f);  // Just above a tie.
  REQUIRE(rounded(-(1.0f + 0x1p-8f)) == -1.0f);
  REQUIRE(rounded(std::numeric_limits<float>::max()) == std::numeric_limits<float>::infinity());
}

TEST_CASE("bfloat16 keeps zeros, infinities and NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  REQUIRE(rounded(infinity) == infinity);
  REQUIRE(rounded(-infinity) == -infinity);
  REQUIRE(std::signbit(rounded(-0.0f)));
  REQUIRE(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
  // A NaN whose set bits are all in the lower half must not become an infinity.
  REQUIRE(std::isnan(rounded(std::bit_cast<float>(uint32_t{0x7f800001}))));
}

TEST_CASE("Every bfloat16 survives the way to f32 and back") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    BFloat16 value;
    value.bits = static_cast<uint16_t>(bits);
    const float wide = static_cast<float>(value);
    if (std::isnan(wide)) continue;
    if (BFloat16(wide) != value) FAIL("bits " << bits);
  }
}

float value_of(uint16_t bits) {
  Float16 half;
  half.bits = bits;
  return static_cast<float>(half);
}

// From the definition: 10 fraction bits, 5 exponent bits, subnormals below 2^-14.
double by_definition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = (bits & 1023) / 1024.0;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0 + fraction, exponent - 15);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST_CASE("Every float16 converts to f32 exactly, and back") {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = value_of(half);
    if ((half & 0x7fff) > 0x7c00) {
      if (!std::isnan(value) || !std::isnan(static_cast<float>(Float16(value))))
        FAIL("not a NaN: " << bits);
    } else {
      const bool is_infinite = (half & 0x7fff) == 0x7c00;
      if (is_infinite ? !std::isinf(value) : static_cast<double>(value) != by_definition(half))
        FAIL("wrong value of " << bits);
      if (Float16(value).bits != half) FAIL("not restored: " << bits);
    }
  }
}

TEST_CASE("float16 rounds to nearest, ties to even") {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float below = value_of(static_cast<uint16_t>(bits));
    const float above = value_of(static_cast<uint16_t>(bits + 1));
    const float middle = (below + above) / 2.0f;  // Exact in f32.
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    if (Float16(middle).bits != even) FAIL("middle above " << bits);
    if (Float16(std::nextafter(middle, 0.0f)).bits != bits) FAIL("below the middle of " << bits);
    if (Float16(std::nextafter(middle, 1e30f)).bits != bits + 1) FAIL("above that of " << bits);
  }
}

TEST_CASE("Values beyond the largest float16 become infinite") {
  REQUIRE(Float16(65519.996f).bits == 0x7bff);
  REQUIRE(Float16(65520.0f).bits == 0x7c00);
  REQUIRE(Float16(-1e30f).bits == 0xfc00);
  REQUIRE(Float16(std::numeric_limits<float>::infinity()).bits == 0x7c00);
  REQUIRE(Float16(-0.0f).bits == 0x8000);
  REQUIRE(Float16(1e-30f).bits == 0);
}

}  // namespace
}  // namespace tessera
