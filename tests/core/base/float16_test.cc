// SPDX-License-Identifier: Apache-2.0
#include "core/base/float16.h"

#include <cmath>
#include <limits>

#include "tests/support/catch.h"

namespace tessera {
namespace {

float value_of(uint16_t bits) {
  Float16 half;
  half.bits = bits;
  return static_cast<float>(half);
}

// By the definition: 10 bits of fraction, 5 of exponent, subnormals below 2^-14.
double by_definition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = (bits & 1023) / 1024.0;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0 + fraction, exponent - 15);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST_CASE("every half is its f32, and comes back") {
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
      if (Float16(value).bits != half) FAIL("does not come back: " << bits);
    }
  }
}

TEST_CASE("between two halves the nearer is taken, and of equally near ones the even") {
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

TEST_CASE("what is beyond the largest half is infinite") {
  REQUIRE(Float16(65519.996f).bits == 0x7bff);
  REQUIRE(Float16(65520.0f).bits == 0x7c00);
  REQUIRE(Float16(-1e30f).bits == 0xfc00);
  REQUIRE(Float16(std::numeric_limits<float>::infinity()).bits == 0x7c00);
  REQUIRE(Float16(-0.0f).bits == 0x8000);
  REQUIRE(Float16(1e-30f).bits == 0);
}

}  // namespace
}  // namespace tessera
