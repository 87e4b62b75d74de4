// SPDX-License-Identifier: Apache-2.0
// Element types and the rounding of bfloat16.
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
            fmt::format("dtype '{}': 16-bit IEEE floats are not supported; bf16 has their size and "
                        "f32's range",
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

}  // namespace
}  // namespace tessera
