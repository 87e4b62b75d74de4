// SPDX-License-Identifier: Apache-2.0
// Runs one instruction on the virtual GPU over special and random values, and on the host.
// %d1 to %d3, %r1 to %r3, %h1, %f1, %g1 and %p1 to %p3 hold the inputs as 64-bit, 32-bit and 16-bit
// words, f32, f64 and predicates (bit 0); the result is %d0, %r0, and so on.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/virtual_gpu/numbers.h"
#include "tests/virtual_gpu/testing.h"

namespace tessera::virtual_gpu {

using U = uint64_t;
using Host = std::function<U(U a, U b, U c)>;

inline constexpr int kThreads = 256, kBlocks = 12;

struct OpcodeCase {
  std::string instruction;
  Host host;
  double tolerance = 0;  // Relative; for approximate f32 results.
};

// The tables of opcodes_test.cc and float_opcodes_test.cc.
std::vector<OpcodeCase> integer_cases();
std::vector<OpcodeCase> bit_cases();
std::vector<OpcodeCase> comparison_cases();
std::vector<OpcodeCase> float_cases();
std::vector<OpcodeCase> conversion_cases();

inline std::string kernel_text(const std::string& instruction) {
  // The result's register is the first operand.
  const char result = instruction[instruction.find("%", 1) + 1];
  const std::string store = result == 'd'   ? "mov.b64 %d7, %d0;"
                            : result == 'g' ? "mov.b64 %d7, %g0;"
                            : result == 'r' ? "cvt.u64.u32 %d7, %r0;"
                            : result == 'h' ? "cvt.u64.u16 %d7, %h0;"
                            : result == 'p' ? "selp.u64 %d7, 1, 0, %p0;"
                                            : "mov.b32 %r7, %f0; cvt.u64.u32 %d7, %r7;";
  std::string text =
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry run(.param .u64 in, .param .u64 out) {\n"
      ".reg .pred %p<5>; .reg .b16 %h<5>; .reg .b32 %r<12>; .reg .f32 %f<5>; .reg .b64 %d<12>;\n"
      ".reg .f64 %g<5>;\n"
      "ld.param.u64 %d8, [in]; ld.param.u64 %d9, [out]; mov.u32 %r8, %tid.x; mov.u32 %r9, "
      "%ctaid.x;\n"
      "mov.u32 %r10, %ntid.x; mad.lo.s32 %r8, %r9, %r10, %r8; mad.wide.u32 %d8, %r8, 24, %d8;\n"
      "mad.wide.u32 %d9, %r8, 8, %d9;\n";
  for (int k = 1; k <= 3; ++k)
    text += fmt::format(
        "ld.global.u64 %d{0}, [%d8+{1}]; cvt.u32.u64 %r{0}, %d{0}; cvt.u16.u64 %h{0}, %d{0};\n"
        "mov.b32 %f{0}, %r{0}; mov.b64 %g{0}, %d{0}; and.b32 %r11, %r{0}, 1;\n"
        "setp.eq.u32 %p{0}, %r11, 1;\n",
        k, 8 * (k - 1));
  return text + instruction + ";\n" + store + "\nst.global.u64 [%d9], %d7;\nret;\n}\n";
}

inline std::vector<U> inputs() {
  std::mt19937_64 random(11);
  const std::vector<U> special = {0,
                                  1,
                                  2,
                                  5,
                                  31,
                                  32,
                                  33,
                                  63,
                                  64,
                                  127,
                                  128,
                                  255,
                                  0x7fff,
                                  0x8000,
                                  0xffff,
                                  0x7c00,
                                  0x3c00,
                                  0x3f80,
                                  0x7f80,
                                  0xff80,
                                  0x7fc0,
                                  0x7fffffff,
                                  0x80000000,
                                  0xffffffff,
                                  0x3f800000,
                                  0xbf800000,
                                  0x7f800000,
                                  0xff800000,
                                  0x7fc00000,
                                  0x00800000,
                                  0x00400001,
                                  0x80000001,
                                  0x4f000000,
                                  0xcf000000,
                                  0x5f000000,
                                  0x3f000000,
                                  0x3fc00000,
                                  0x40200000,
                                  0x7f7fffff,
                                  0x7fffffffffffffff,
                                  0x8000000000000000,
                                  0xffffffffffffffff,
                                  0x3ff0000000000000,
                                  0x7ff0000000000000,
                                  0xfff0000000000000,
                                  0x7ff8000000000000,
                                  0x0008000000000000,
                                  0x41dfffffffc00000,
                                  0x43e0000000000000,
                                  0x3fe0000000000000,
                                  0x8000000000000001};
  const auto any = [&]() -> U {
    switch (random() % 6) {
      case 0:
        return special[random() % special.size()];
      case 1:
        return random();
      case 2:
        return random() >> random() % 64;
      case 3: {  // f32 numbers of moderate size.
        const float x = std::ldexp(static_cast<float>(static_cast<int>(random() % 2001) - 1000),
                                   static_cast<int>(random() % 24) - 16);
        return std::bit_cast<uint32_t>(x);
      }
      case 4:
        return std::bit_cast<U>(
            std::ldexp(static_cast<double>(static_cast<int>(random() % 2001)) - 999.5,
                       static_cast<int>(random() % 40) - 20));
      default:
        return (random() & 0xffff) | (random() & 0xffff) << 16;
    }
  };
  std::vector<U> values(3 * kThreads * kBlocks);
  for (U& value : values) value = any();
  // All pairs of special values come first.
  size_t at = 0;
  for (const U a : special)
    for (const U b : special)
      if (3 * at + 1 < values.size()) values[3 * at] = a, values[3 * at++ + 1] = b;
  return values;
}

inline bool close(U got, U wanted, double tolerance) {
  if (got == wanted) return true;
  if (tolerance == 0) return false;
  const double x = float_of(got), y = float_of(wanted);
  return std::fabs(x - y) <= tolerance * std::fabs(y) || (std::isnan(x) && std::isnan(y));
}

inline void check(const OpcodeCase& c) {
  static const std::vector<U> values = inputs();
  INFO(c.instruction);
  TestDevice device(kernel_text(c.instruction));
  const uint64_t in = device.put(values), out = device.make<U>(values.size() / 3);
  REQUIRE(device.fault("run", grid_of(kBlocks, kThreads), in, out) == "");
  const std::vector<U> results = device.get<U>(out, values.size() / 3);
  for (size_t k = 0; k < results.size(); ++k) {
    const U a = values[3 * k], b = values[3 * k + 1], d = values[3 * k + 2];
    const U wanted = c.host(a, b, d);
    if (close(results[k], wanted, c.tolerance)) continue;
    FAIL(fmt::format("{} of 0x{:x}, 0x{:x}, 0x{:x}: got 0x{:x}, expected 0x{:x}", c.instruction, a,
                     b, d, results[k], wanted));
  }
}

inline float f32(U bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
inline double f64(U bits) { return std::bit_cast<double>(bits); }
inline U out32(float x) { return std::isnan(x) ? 0x7fffffff : std::bit_cast<uint32_t>(x); }
inline U out64(double x) { return std::isnan(x) ? 0x7fffffffffffffff : std::bit_cast<U>(x); }
inline float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

template <typename T>
U word(T x) {
  return static_cast<std::make_unsigned_t<T>>(x);
}
}  // namespace tessera::virtual_gpu
