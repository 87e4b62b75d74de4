// SPDX-License-Identifier: Apache-2.0
// Every arithmetic instruction against host arithmetic, over special and random values. A case is
// one instruction: %d1 to %d3, %r1 …, %h1 …, %f1 …, %g1 … and %p1 … hold the inputs as 64-bit,
// 32-bit and 16-bit words, f32, f64 and predicates (bit 0); the result is %d0, %r0, and so on.
#include <bit>
#include <cfenv>
#include <cmath>
#include <functional>
#include <random>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/virtual_gpu/numbers.h"
#include "tests/virtual_gpu/testing.h"

namespace tessera::virtual_gpu {
namespace {

using U = uint64_t;
using Host = std::function<U(U a, U b, U c)>;

constexpr int kThreads = 256, kBlocks = 12;

struct OpcodeCase {
  std::string instruction;
  Host host;
  double tolerance = 0;  // Relative, of f32 results: approximations.
};

std::string kernel_text(const std::string& instruction) {
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

std::vector<U> inputs() {
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
      case 3: {  // Floats of moderate size, as f32.
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

bool close(U got, U wanted, double tolerance) {
  if (got == wanted) return true;
  if (tolerance == 0) return false;
  const double x = float_of(got), y = float_of(wanted);
  return std::fabs(x - y) <= tolerance * std::fabs(y) || (std::isnan(x) && std::isnan(y));
}

void check(const OpcodeCase& c) {
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

// Host functions of words.
template <typename T>
U word(T x) {
  return static_cast<std::make_unsigned_t<T>>(x);
}
template <typename T, typename F>
Host integer(F f) {
  return [f](U a, U b, U c) {
    return word<T>(static_cast<T>(f(static_cast<T>(a), static_cast<T>(b), static_cast<T>(c))));
  };
}
float f32(U bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
double f64(U bits) { return std::bit_cast<double>(bits); }
U out32(float x) { return std::isnan(x) ? 0x7fffffff : std::bit_cast<uint32_t>(x); }
U out64(double x) { return std::isnan(x) ? 0x7fffffffffffffff : std::bit_cast<U>(x); }
template <typename F>
Host real(F f) {
  return [f](U a, U b, U c) { return out32(static_cast<float>(f(f32(a), f32(b), f32(c)))); };
}
template <typename F>
Host real64(F f) {
  return [f](U a, U b, U c) { return out64(f(f64(a), f64(b), f64(c))); };
}
template <typename T, typename F>
Host comparison(F f) {
  return [f](U a, U b, U) { return U{f(static_cast<T>(a), static_cast<T>(b))}; };
}
template <typename F>
Host predicate32(F f) {
  return [f](U a, U b, U) { return U{f(f32(a), f32(b))}; };
}
// With another direction of rounding of the host's unit.
template <typename F>
Host rounded(int direction, F f) {
  return [=](U a, U b, U c) {
    const int old = std::fegetround();
    std::fesetround(direction);
    volatile float x = f32(a), y = f32(b), z = f32(c);
    const float result = f(x, y, z);
    std::fesetround(old);
    return out32(result);
  };
}
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

// bf16 and f16 by search among neighbours: slow, but independent of the interpreter.
double brain(U bits) { return f32((bits & 0xffff) << 16); }
double half(U bits) {
  const int exponent = bits >> 10 & 31;
  const double mantissa = static_cast<double>(bits & 1023) / 1024;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * INFINITY;
  return exponent ? sign * (1 + mantissa) * std::exp2(exponent - 15)
                  : sign * mantissa * std::exp2(-14);
}
// The nearest value of 16 bits, ties to even; `value` is monotonic in its lower 15 bits.
U nearest16(long double x, double (*value)(U), U infinity) {
  if (std::isnan(x)) return 0x7fff;
  const U sign = std::signbit(x) ? 0x8000 : 0;
  const long double size = std::fabs(x);
  U low = 0, high = infinity;
  while (high - low > 1) {
    const U middle = (low + high) / 2;
    (value(middle) <= size ? low : high) = middle;
  }
  if (size >= value(infinity - 1)) {  // Infinity counts as the next value of the grid.
    const long double last = value(infinity - 1), step = last - value(infinity - 2);
    return sign | (size >= last + step / 2 ? infinity : infinity - 1);
  }
  const long double below = size - value(low), above = value(high) - size;
  return sign | (below < above || (below == above && !(low & 1)) ? low : high);
}
U to_brain(long double x) { return nearest16(x, brain, 0x7f80); }
U to_half(long double x) { return nearest16(x, half, 0x7c00); }

template <typename F>
Host both_halves(double (*value)(U), U (*round)(long double), F f) {
  return [=](U a, U b, U c) {
    const auto part = [&](int shift) {
      return round(f(static_cast<long double>(value(a >> shift)),
                     static_cast<long double>(value(b >> shift)),
                     static_cast<long double>(value(c >> shift))));
    };
    return part(0) | part(16) << 16;
  };
}
template <typename F>
Host low_half(double (*value)(U), U (*round)(long double), F f) {
  return [=](U a, U b, U c) {
    return round(f(static_cast<long double>(value(a)), static_cast<long double>(value(b)),
                   static_cast<long double>(value(c))));
  };
}

template <typename T>
U clamped(double x) {
  if (std::isnan(x)) return 0;
  if (x <= static_cast<double>(std::numeric_limits<T>::min()))
    return word(std::numeric_limits<T>::min());
  if (x >= static_cast<double>(std::numeric_limits<T>::max()))
    return word(std::numeric_limits<T>::max());
  return word(static_cast<T>(x));
}

}  // namespace

TEST_CASE("Opcodes: integer arithmetic") {
  const auto add = [](auto a, auto b, auto) { return word(a) + word(b); };
  const auto mul = [](auto a, auto b, auto) { return word(a) * word(b); };
  const auto mad = [](auto a, auto b, auto c) { return word(a) * word(b) + word(c); };
  const auto divide = [](auto a, auto b, auto) {
    using T = decltype(a);
    if (b == 0) return static_cast<T>(-1);
    return static_cast<T>(static_cast<__int128>(a) / b);
  };
  const auto modulo = [](auto a, auto b, auto) {
    return b == 0 ? a : static_cast<decltype(a)>(static_cast<__int128>(a) % b);
  };
  const auto least = [](auto a, auto b, auto) { return std::min(a, b); };
  const auto most = [](auto a, auto b, auto) { return std::max(a, b); };
  const auto high = [](auto a, auto b, auto) {
    return static_cast<__int128>(a) * static_cast<__int128>(b) >> (8 * sizeof a);
  };
  const auto negate = [](auto a, auto, auto) { return 0 - word(a); };
  const auto absolute = [](auto a, auto, auto) { return a < 0 ? 0 - word(a) : word(a); };
  const OpcodeCase cases[] = {
      {"add.s16 %h0, %h1, %h2", integer<int16_t>(add)},
      {"add.s32 %r0, %r1, %r2", integer<int32_t>(add)},
      {"add.u64 %d0, %d1, %d2", integer<U>(add)},
      {"add.s32 %r0, %r1, -7", [](U a, U, U) { return U{static_cast<uint32_t>(a - 7)}; }},
      {"sub.s32 %r0, %r1, %r2", [](U a, U b, U) { return U{static_cast<uint32_t>(a - b)}; }},
      {"sub.s64 %d0, %d1, %d2", [](U a, U b, U) { return a - b; }},
      {"mul.lo.s16 %h0, %h1, %h2", integer<int16_t>(mul)},
      {"mul.lo.s32 %r0, %r1, %r2", integer<int32_t>(mul)},
      {"mul.lo.s64 %d0, %d1, %d2", integer<int64_t>(mul)},
      {"mul.hi.s32 %r0, %r1, %r2", integer<int32_t>(high)},
      {"mul.hi.u32 %r0, %r1, %r2", integer<uint32_t>(high)},
      {"mul.hi.s64 %d0, %d1, %d2", integer<int64_t>(high)},
      {"mul.hi.u64 %d0, %d1, %d2",
       [](U a, U b, U) { return static_cast<U>(static_cast<unsigned __int128>(a) * b >> 64); }},
      {"mul.wide.s32 %d0, %r1, %r2",
       [](U a, U b, U) { return word(int64_t{static_cast<int32_t>(a)} * static_cast<int32_t>(b)); }},
      {"mul.wide.u32 %d0, %r1, %r2", [](U a, U b, U) { return U{uint32_t(a)} * uint32_t(b); }},
      {"mul.wide.s16 %r0, %h1, %h2", [](U a, U b, U) { return word(int16_t(a) * int16_t(b)); }},
      {"mul.wide.u16 %r0, %h1, %h2",
       [](U a, U b, U) { return U{uint32_t{uint16_t(a)} * uint16_t(b)}; }},
      {"mad.lo.s32 %r0, %r1, %r2, %r3", integer<int32_t>(mad)},
      {"mad.lo.u64 %d0, %d1, %d2, %d3", integer<U>(mad)},
      {"mad.wide.s32 %d0, %r1, %r2, %d3",
       [](U a, U b, U c) { return word(int64_t{int32_t(a)} * int32_t(b)) + c; }},
      {"mad.wide.u32 %d0, %r1, %r2, %d3", [](U a, U b, U c) { return U{uint32_t(a)} * uint32_t(b) + c; }},
      {"mad.hi.u32 %r0, %r1, %r2, %r3",
       [](U a, U b, U c) { return U{uint32_t((U{uint32_t(a)} * uint32_t(b) >> 32) + c)}; }},
      {"mul24.lo.u32 %r0, %r1, %r2",
       [](U a, U b, U) { return U{uint32_t((a & 0xffffff) * (b & 0xffffff))}; }},
      {"div.s32 %r0, %r1, %r2", integer<int32_t>(divide)},
      {"div.u32 %r0, %r1, %r2", integer<uint32_t>(divide)},
      {"div.s64 %d0, %d1, %d2", integer<int64_t>(divide)},
      {"div.u64 %d0, %d1, %d2", [](U a, U b, U) { return b ? a / b : ~U{0}; }},
      {"div.s16 %h0, %h1, %h2", integer<int16_t>(divide)},
      {"rem.s32 %r0, %r1, %r2", integer<int32_t>(modulo)},
      {"rem.u32 %r0, %r1, %r2", integer<uint32_t>(modulo)},
      {"rem.s64 %d0, %d1, %d2", integer<int64_t>(modulo)},
      {"rem.u64 %d0, %d1, %d2", [](U a, U b, U) { return b ? a % b : a; }},
      {"min.s32 %r0, %r1, %r2", integer<int32_t>(least)},
      {"min.u32 %r0, %r1, %r2", integer<uint32_t>(least)},
      {"min.s64 %d0, %d1, %d2", integer<int64_t>(least)},
      {"max.u64 %d0, %d1, %d2", integer<U>(most)},
      {"max.s32 %r0, %r1, %r2", integer<int32_t>(most)},
      {"max.s16 %h0, %h1, %h2", integer<int16_t>(most)},
      {"neg.s32 %r0, %r1", integer<int32_t>(negate)},
      {"neg.s64 %d0, %d1", integer<int64_t>(negate)},
      {"abs.s32 %r0, %r1", integer<int32_t>(absolute)},
      {"abs.s64 %d0, %d1", integer<int64_t>(absolute)},
      {"sad.u32 %r0, %r1, %r2, %r3",
       [](U a, U b, U c) {
         const auto x = uint32_t(a), y = uint32_t(b);
         return U{uint32_t(c) + (x < y ? y - x : x - y)} & 0xffffffff;
       }},
      {"dp4a.s32.s32 %r0, %r1, %r2, %r3",
       [](U a, U b, U c) {
         auto sum = uint32_t(c);
         for (int k = 0; k < 32; k += 8) sum += uint32_t(int{int8_t(a >> k)} * int8_t(b >> k));
         return U{sum};
       }},
      {"dp4a.u32.s32 %r0, %r1, %r2, %r3", [](U a, U b, U c) {
         auto sum = uint32_t(c);
         for (int k = 0; k < 32; k += 8) sum += uint32_t(int{uint8_t(a >> k)} * int8_t(b >> k));
         return U{sum};
       }}};
  for (const OpcodeCase& c : cases) check(c);
}

TEST_CASE("Opcodes: bits") {
  const auto shift = [](U x, U n, U bits, bool left, bool sign) -> U {
    const U low = bits == 64 ? ~U{0} : (U{1} << bits) - 1;
    n &= 0xffffffff;
    x &= low;
    U result = left ? x : x;
    for (U k = 0; k < std::min<U>(n, 64); ++k)
      result =
          left ? result << 1 & low : result >> 1 | (sign ? (x >> (bits - 1)) << (bits - 1) : 0);
    return result;
  };
  const auto field = [](U x, U b, U c, int bits, bool sign) -> U {  // As the PTX ISA defines bfe.
    const int position = b & 255, length = c & 255;
    const int last = std::min(position + length - 1, bits - 1);
    const U filler = !sign || length == 0 ? 0 : x >> last & 1;
    U result = 0;
    for (int k = 0; k < bits; ++k)
      result |= (k < length && position + k <= bits - 1 ? x >> (position + k) & 1 : filler) << k;
    return result;
  };
  const auto inserted = [](U a, U b, U c, U d, int bits) -> U {
    U result = bits == 64 ? b : b & 0xffffffff;
    for (int k = 0; k < int(d & 255) && int(c & 255) + k < bits; ++k) {
      const U bit = U{1} << ((c & 255) + k);
      result = a >> k & 1 ? result | bit : result & ~bit;
    }
    return result;
  };
  const auto reversed = [](U x, int bits) {
    U result = 0;
    for (int k = 0; k < bits; ++k) result |= (x >> k & 1) << (bits - 1 - k);
    return result;
  };
  const auto low = [](U x) { return x & 0xffffffff; };
  const OpcodeCase cases[] = {
      {"and.b32 %r0, %r1, %r2", [=](U a, U b, U) { return low(a & b); }},
      {"or.b64 %d0, %d1, %d2", [](U a, U b, U) { return a | b; }},
      {"xor.b16 %h0, %h1, %h2", [](U a, U b, U) { return (a ^ b) & 0xffff; }},
      {"not.b32 %r0, %r1", [=](U a, U, U) { return low(~a); }},
      {"not.b64 %d0, %d1", [](U a, U, U) { return ~a; }},
      {"cnot.b32 %r0, %r1", [=](U a, U, U) { return U{low(a) == 0}; }},
      {"and.pred %p0, %p1, %p2", [](U a, U b, U) { return a & b & 1; }},
      {"or.pred %p0, %p1, %p2", [](U a, U b, U) { return (a | b) & 1; }},
      {"xor.pred %p0, %p1, %p2", [](U a, U b, U) { return (a ^ b) & 1; }},
      {"not.pred %p0, %p1", [](U a, U, U) { return ~a & 1; }},
      {"mov.pred %p0, %p2", [](U, U b, U) { return b & 1; }},
      {"shl.b16 %h0, %h1, %r2", [=](U a, U b, U) { return shift(a, b, 16, true, false); }},
      {"shl.b32 %r0, %r1, %r2", [=](U a, U b, U) { return shift(a, b, 32, true, false); }},
      {"shl.b64 %d0, %d1, %r2", [=](U a, U b, U) { return shift(a, b, 64, true, false); }},
      {"shr.u32 %r0, %r1, %r2", [=](U a, U b, U) { return shift(a, b, 32, false, false); }},
      {"shr.s32 %r0, %r1, %r2", [=](U a, U b, U) { return shift(a, b, 32, false, true); }},
      {"shr.s16 %h0, %h1, %r2", [=](U a, U b, U) { return shift(a, b, 16, false, true); }},
      {"shr.u64 %d0, %d1, %r2", [=](U a, U b, U) { return shift(a, b, 64, false, false); }},
      {"shr.s64 %d0, %d1, %r2", [=](U a, U b, U) { return shift(a, b, 64, false, true); }},
      {"bfe.u32 %r0, %r1, %r2, %r3", [=](U a, U b, U c) { return field(low(a), b, c, 32, false); }},
      {"bfe.s32 %r0, %r1, %r2, %r3", [=](U a, U b, U c) { return field(low(a), b, c, 32, true); }},
      {"bfe.u64 %d0, %d1, %r2, %r3", [=](U a, U b, U c) { return field(a, b, c, 64, false); }},
      {"bfe.s64 %d0, %d1, %r2, %r3", [=](U a, U b, U c) { return field(a, b, c, 64, true); }},
      {"bfi.b32 %r0, %r1, %r2, %r3, 5", [=](U a, U b, U c) { return inserted(a, b, c, 5, 32); }},
      {"bfi.b32 %r0, %r1, 0, 3, %r2", [=](U a, U b, U) { return inserted(a, 0, 3, b, 32); }},
      {"bfi.b64 %d0, %d1, %d2, %r3, 17", [=](U a, U b, U c) { return inserted(a, b, c, 17, 64); }},
      {"prmt.b32 %r0, %r1, %r2, %r3",
       [=](U a, U b, U c) {
         U result = 0;
         for (int k = 0; k < 4; ++k) {
           const U s = c >> (4 * k) & 15;
           const U byte = ((s & 4 ? b : a) >> (8 * (s & 3))) & 255;
           result |= (s & 8 ? (byte & 128 ? U{255} : U{0}) : byte) << (8 * k);
         }
         return result;
       }},
      {"shf.l.wrap.b32 %r0, %r1, %r2, %r3",
       [=](U a, U b, U c) { return low((b << 32 | low(a)) >> (32 - (c & 31))); }},
      {"shf.r.wrap.b32 %r0, %r1, %r2, %r3",
       [=](U a, U b, U c) { return low((b << 32 | low(a)) >> (c & 31)); }},
      {"shf.l.clamp.b32 %r0, %r1, %r2, %r3",
       [=](U a, U b, U c) { return low((b << 32 | low(a)) >> (32 - std::min<U>(low(c), 32))); }},
      {"shf.r.clamp.b32 %r0, %r1, %r2, %r3",
       [=](U a, U b, U c) { return low((b << 32 | low(a)) >> std::min<U>(low(c), 32)); }},
      {"lop3.b32 %r0, %r1, %r2, %r3, 0xE8",
       [=](U a, U b, U c) { return low((a & b) | (a & c) | (b & c)); }},
      {"lop3.b32 %r0, %r1, %r2, %r3, 0x96", [=](U a, U b, U c) { return low(a ^ b ^ c); }},
      {"lop3.b32 %r0, %r1, %r2, %r3, 0xCA", [=](U a, U b, U c) { return low((a & b) | (~a & c)); }},
      {"popc.b32 %r0, %r1", [=](U a, U, U) { return U(std::popcount(low(a))); }},
      {"popc.b64 %r0, %d1", [](U a, U, U) { return U(std::popcount(a)); }},
      {"clz.b32 %r0, %r1", [](U a, U, U) { return U(std::countl_zero(uint32_t(a))); }},
      {"clz.b64 %r0, %d1", [](U a, U, U) { return U(std::countl_zero(a)); }},
      {"brev.b32 %r0, %r1", [=](U a, U, U) { return reversed(a, 32); }},
      {"brev.b64 %d0, %d1", [=](U a, U, U) { return reversed(a, 64); }},
      {"bfind.u32 %r0, %r1", [=](U a, U, U) { return low(31 - std::countl_zero(uint32_t(a))); }},
      {"bfind.s32 %r0, %r1",
       [=](U a, U, U) {
         return low(31 - std::countl_zero(uint32_t(int32_t(a) < 0 ? ~a : a)));
       }},
      {"selp.b32 %r0, %r1, %r2, %p3", [=](U a, U b, U c) { return low(c & 1 ? a : b); }},
      {"selp.f64 %g0, %g1, %g2, %p3", [](U a, U b, U c) { return c & 1 ? a : b; }},
      {"mov.b32 %r0, {%h1, %h2}", [](U a, U b, U) { return (a & 0xffff) | (b & 0xffff) << 16; }},
      {"mov.b64 %d0, {%r1, %r2}", [=](U a, U b, U) { return low(a) | b << 32; }},
      {"mov.b64 {_, %r0}, %d1", [](U a, U, U) { return a >> 32; }},
      {"mov.b32 {%h0, _}, %r1", [](U a, U, U) { return a & 0xffff; }},
      {"mov.u32 %r0, -5", [=](U, U, U) { return low(~U{4}); }},
      {"mov.f32 %f0, 0f3FC00000", [](U, U, U) { return U{0x3fc00000}; }},
      {"mov.f64 %g0, 0d3FF8000000000000", [](U, U, U) { return U{0x3ff8000000000000}; }}};
  for (const OpcodeCase& c : cases) check(c);
}

TEST_CASE("Opcodes: comparisons") {
  const auto nan = [](float a, float b) { return std::isnan(a) || std::isnan(b); };
  const OpcodeCase cases[] = {
      {"setp.eq.s32 %p0, %r1, %r2", comparison<int32_t>(std::equal_to<>())},
      {"setp.ne.u64 %p0, %d1, %d2", comparison<U>(std::not_equal_to<>())},
      {"setp.lt.s32 %p0, %r1, %r2", comparison<int32_t>(std::less<>())},
      {"setp.lt.u32 %p0, %r1, %r2", comparison<uint32_t>(std::less<>())},
      {"setp.le.s64 %p0, %d1, %d2", comparison<int64_t>(std::less_equal<>())},
      {"setp.gt.u16 %p0, %h1, %h2", comparison<uint16_t>(std::greater<>())},
      {"setp.ge.s16 %p0, %h1, %h2", comparison<int16_t>(std::greater_equal<>())},
      {"setp.hi.u32 %p0, %r1, %r2", comparison<uint32_t>(std::greater<>())},
      {"setp.ls.u32 %p0, %r1, %r2", comparison<uint32_t>(std::less_equal<>())},
      {"setp.eq.f32 %p0, %f1, %f2", predicate32(std::equal_to<>())},
      {"setp.ne.f32 %p0, %f1, %f2",
       predicate32([=](float a, float b) { return a != b && !nan(a, b); })},
      {"setp.lt.f32 %p0, %f1, %f2", predicate32(std::less<>())},
      {"setp.ge.f32 %p0, %f1, %f2", predicate32(std::greater_equal<>())},
      {"setp.equ.f32 %p0, %f1, %f2",
       predicate32([=](float a, float b) { return a == b || nan(a, b); })},
      {"setp.neu.f32 %p0, %f1, %f2", predicate32(std::not_equal_to<>())},
      {"setp.ltu.f32 %p0, %f1, %f2", predicate32([](float a, float b) { return !(a >= b); })},
      {"setp.leu.f32 %p0, %f1, %f2", predicate32([](float a, float b) { return !(a > b); })},
      {"setp.gtu.f32 %p0, %f1, %f2", predicate32([](float a, float b) { return !(a <= b); })},
      {"setp.geu.f32 %p0, %f1, %f2", predicate32([](float a, float b) { return !(a < b); })},
      {"setp.nan.f32 %p0, %f1, %f2", predicate32(nan)},
      {"setp.num.f32 %p0, %f1, %f2", predicate32([=](float a, float b) { return !nan(a, b); })},
      {"setp.gt.ftz.f32 %p0, %f1, %f2",
       predicate32([](float a, float b) { return flushed(a) > flushed(b); })},
      {"setp.lt.f64 %p0, %g1, %g2", [](U a, U b, U) { return U{f64(a) < f64(b)}; }},
      {"setp.lt.and.s32 %p0, %r1, %r2, %p3",
       [](U a, U b, U c) { return U{int32_t(a) < int32_t(b) && (c & 1)}; }},
      {"setp.lt.or.s32 %p0, %r1, %r2, !%p3",
       [](U a, U b, U c) { return U{int32_t(a) < int32_t(b) || !(c & 1)}; }},
      {"setp.eq.xor.f32 %p0, %f1, %f2, %p3",
       [](U a, U b, U c) { return U{(f32(a) == f32(b)) != bool(c & 1)}; }},
      {"setp.gt.s32 %p4|%p0, %r1, %r2", [](U a, U b, U) { return U{!(int32_t(a) > int32_t(b))}; }},
      {"set.lt.u32.s32 %r0, %r1, %r2",
       [](U a, U b, U) { return int32_t(a) < int32_t(b) ? U{0xffffffff} : U{0}; }},
      {"set.gt.f32.f32 %f0, %f1, %f2",
       [](U a, U b, U) { return f32(a) > f32(b) ? U{0x3f800000} : U{0}; }},
      {"testp.finite.f32 %p0, %f1", [](U a, U, U) { return U{std::isfinite(f32(a))}; }},
      {"testp.notanumber.f64 %p0, %g1", [](U a, U, U) { return U{std::isnan(f64(a))}; }},
      {"testp.subnormal.f32 %p0, %f1",
       [](U a, U, U) { return U{std::fpclassify(f32(a)) == FP_SUBNORMAL}; }}};
  for (const OpcodeCase& c : cases) check(c);
}

TEST_CASE("Opcodes: f32 and f64") {
  const auto least = [](auto a, auto b, auto) {
    if (a == 0 && b == 0) return std::signbit(a) ? a : b;
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
    return a < b ? a : b;
  };
  const auto most = [](auto a, auto b, auto) {
    if (a == 0 && b == 0) return std::signbit(a) ? b : a;
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
    return a < b ? b : a;
  };
  const auto add = [](auto a, auto b, auto) { return a + b; };
  const auto multiply = [](auto a, auto b, auto) { return a * b; };
  const auto fused = [](auto a, auto b, auto c) { return std::fma(a, b, c); };
  const auto unit = [](float x) { return x > 0 ? std::min(x, 1.0f) : 0.0f; };
  const double kApproximate = 3e-7;
  const OpcodeCase cases[] = {
      {"add.f32 %f0, %f1, %f2", real(add)},
      {"add.rn.f32 %f0, %f1, 0f3F800000", real([](float a, float, float) { return a + 1; })},
      {"sub.f32 %f0, %f1, %f2", real([](float a, float b, float) { return a - b; })},
      {"mul.f32 %f0, %f1, %f2", real(multiply)},
      {"mul.rn.f32 %f0, %f1, %f2", real(multiply)},
      {"fma.rn.f32 %f0, %f1, %f2, %f3", real(fused)},
      {"add.ftz.f32 %f0, %f1, %f2",
       real([](float a, float b, float) { return flushed(flushed(a) + flushed(b)); })},
      {"mul.ftz.f32 %f0, %f1, %f2",
       real([](float a, float b, float) { return flushed(flushed(a) * flushed(b)); })},
      {"add.sat.f32 %f0, %f1, %f2", real([=](float a, float b, float) { return unit(a + b); })},
      {"fma.rn.sat.f32 %f0, %f1, %f2, %f3",
       real([=](float a, float b, float c) { return unit(std::fma(a, b, c)); })},
      {"fma.rm.f32 %f0, %f1, %f2, %f3", rounded(FE_DOWNWARD, fused)},
      {"fma.rp.f32 %f0, %f1, %f2, %f3", rounded(FE_UPWARD, fused)},
      {"fma.rz.f32 %f0, %f1, %f2, %f3", rounded(FE_TOWARDZERO, fused)},
      {"add.rz.f32 %f0, %f1, %f2", rounded(FE_TOWARDZERO, add)},
      {"mul.rp.f32 %f0, %f1, %f2", rounded(FE_UPWARD, multiply)},
      {"div.rn.f32 %f0, %f1, %f2", real([](float a, float b, float) { return a / b; })},
      {"div.full.f32 %f0, %f1, %f2", real([](float a, float b, float) { return a / b; }),
       kApproximate},
      {"rcp.rn.f32 %f0, %f1", real([](float a, float, float) { return 1 / a; })},
      {"sqrt.rn.f32 %f0, %f1", real([](float a, float, float) { return std::sqrt(a); })},
      {"sqrt.approx.ftz.f32 %f0, %f1",
       real([](float a, float, float) { return std::sqrt(flushed(a)); }), kApproximate},
      {"rsqrt.approx.f32 %f0, %f1",
       real([](float a, float, float) { return 1 / std::sqrt(double{a}); }), kApproximate},
      {"ex2.approx.f32 %f0, %f1", real([](float a, float, float) { return std::exp2(double{a}); }),
       kApproximate},
      {"ex2.approx.ftz.f32 %f0, %f1",
       real([](float a, float, float) { return flushed(std::exp2(flushed(a))); }), kApproximate},
      {"lg2.approx.f32 %f0, %f1", real([](float a, float, float) { return std::log2(double{a}); }),
       kApproximate},
      {"sin.approx.f32 %f0, %f1", real([](float a, float, float) { return std::sin(double{a}); }),
       kApproximate},
      {"cos.approx.f32 %f0, %f1", real([](float a, float, float) { return std::cos(double{a}); }),
       kApproximate},
      {"tanh.approx.f32 %f0, %f1", real([](float a, float, float) { return std::tanh(double{a}); }),
       kApproximate},
      {"min.f32 %f0, %f1, %f2", real(least)},
      {"max.f32 %f0, %f1, %f2", real(most)},
      {"max.NaN.f32 %f0, %f1, %f2", real([=](float a, float b, float c) {
         return std::isnan(a) || std::isnan(b) ? NAN : most(a, b, c);
       })},
      {"neg.f32 %f0, %f1", real([](float a, float, float) { return -a; })},
      {"abs.f32 %f0, %f1", real([](float a, float, float) { return std::fabs(a); })},
      {"copysign.f32 %f0, %f1, %f2",
       real([](float a, float b, float) { return std::copysign(b, a); })},
      {"add.f64 %g0, %g1, %g2", real64(add)},
      {"sub.f64 %g0, %g1, %g2", real64([](double a, double b, double) { return a - b; })},
      {"mul.f64 %g0, %g1, %g2", real64(multiply)},
      {"fma.rn.f64 %g0, %g1, %g2, %g3", real64(fused)},
      {"div.rn.f64 %g0, %g1, %g2", real64([](double a, double b, double) { return a / b; })},
      {"rcp.rn.f64 %g0, %g1", real64([](double a, double, double) { return 1 / a; })},
      {"sqrt.rn.f64 %g0, %g1", real64([](double a, double, double) { return std::sqrt(a); })},
      {"min.f64 %g0, %g1, %g2", real64(least)},
      {"max.f64 %g0, %g1, %g2", real64(most)},
      {"neg.f64 %g0, %g1", real64([](double a, double, double) { return -a; })},
      {"abs.f64 %g0, %g1", real64([](double a, double, double) { return std::fabs(a); })}};
  for (const OpcodeCase& c : cases) check(c);
}

TEST_CASE("Opcodes: f16 and bf16") {
  using L = long double;
  const auto add = [](L a, L b, L) { return a + b; };
  const auto sub = [](L a, L b, L) { return a - b; };
  const auto multiply = [](L a, L b, L) { return a * b; };
  const auto fused = [](L a, L b, L c) { return a * b + c; };  // 64 bits: enough below.
  const auto most = [](L a, L b, L) {
    return a == 0 && b == 0 ? (std::signbit(a) ? b : a) : std::fmax(a, b);
  };
  const OpcodeCase cases[] = {
      {"add.f16x2 %r0, %r1, %r2", both_halves(half, to_half, add)},
      {"sub.f16x2 %r0, %r1, %r2", both_halves(half, to_half, sub)},
      {"mul.f16x2 %r0, %r1, %r2", both_halves(half, to_half, multiply)},
      {"fma.rn.f16x2 %r0, %r1, %r2, %r3", both_halves(half, to_half, fused)},
      {"add.f16 %h0, %h1, %h2", low_half(half, to_half, add)},
      {"max.f16x2 %r0, %r1, %r2", both_halves(half, to_half, most)},
      {"add.bf16x2 %r0, %r1, %r2", both_halves(brain, to_brain, add)},
      {"mul.bf16x2 %r0, %r1, %r2", both_halves(brain, to_brain, multiply)},
      {"max.bf16x2 %r0, %r1, %r2", both_halves(brain, to_brain, most)},
      {"mul.bf16 %h0, %h1, %h2", low_half(brain, to_brain, multiply)},
      {"neg.bf16x2 %r0, %r1", [](U a, U, U) { return (a ^ 0x80008000) & 0xffffffff; }},
      {"abs.bf16 %h0, %h1", [](U a, U, U) { return a & 0x7fff; }}};
  for (const OpcodeCase& c : cases) check(c);
}

TEST_CASE("Fused sums are rounded once") {
  // 1 + 2^-8 is halfway between two bf16 numbers; a tiny term decides.
  const auto sum = [](double term) {
    return narrow(fused(1.0, 1 + std::ldexp(1.0, -8), term), 8, 7, Rounding::kNearest);
  };
  REQUIRE(sum(0) == 0x3f80);
  REQUIRE(sum(std::ldexp(1.0, -120)) == 0x3f81);
  REQUIRE(sum(-std::ldexp(1.0, -120)) == 0x3f80);
  const auto odd = [](double term) {
    return narrow(fused(1.0, 1 + 3 * std::ldexp(1.0, -8), term), 8, 7, Rounding::kNearest);
  };
  REQUIRE(odd(0) == 0x3f82);
  REQUIRE(odd(-std::ldexp(1.0, -120)) == 0x3f81);
}

TEST_CASE("Opcodes: conversions") {
  const auto integer_of = [](double x) { return std::nearbyint(x); };
  const auto as = [](auto f) { return Host([f](U a, U, U) { return static_cast<U>(f(a)); }); };
  const OpcodeCase cases[] = {
      {"cvt.u32.u16 %r0, %h1", as([](U a) { return uint16_t(a); })},
      {"cvt.s32.s16 %r0, %h1", as([](U a) { return uint32_t(int16_t(a)); })},
      {"cvt.s32.s8 %r0, %r1", as([](U a) { return uint32_t(int8_t(a)); })},
      {"cvt.u32.u8 %r0, %r1", as([](U a) { return uint8_t(a); })},
      {"cvt.u16.u32 %h0, %r1", as([](U a) { return uint16_t(a); })},
      {"cvt.s64.s32 %d0, %r1", as([](U a) { return int64_t{int32_t(a)}; })},
      {"cvt.u64.u32 %d0, %r1", as([](U a) { return uint32_t(a); })},
      {"cvt.s16.s8 %h0, %h1", as([](U a) { return uint16_t(int8_t(a)); })},
      {"cvt.sat.s8.s32 %r0, %r1",
       as([](U a) { return uint32_t(std::clamp(int32_t(a), -128, 127)); })},
      {"cvt.sat.u8.s32 %r0, %r1", as([](U a) { return std::clamp(int32_t(a), 0, 255); })},
      {"cvt.rn.f32.s32 %f0, %r1", as([](U a) { return out32(static_cast<float>(int32_t(a))); })},
      {"cvt.rn.f32.u32 %f0, %r1", as([](U a) { return out32(static_cast<float>(uint32_t(a))); })},
      {"cvt.rn.f32.s64 %f0, %d1", as([](U a) { return out32(static_cast<float>(int64_t(a))); })},
      {"cvt.rn.f32.u64 %f0, %d1", as([](U a) { return out32(static_cast<float>(a)); })},
      {"cvt.rn.f32.u16 %f0, %h1", as([](U a) { return out32(uint16_t(a)); })},
      {"cvt.rn.f64.s32 %g0, %r1", as([](U a) { return out64(int32_t(a)); })},
      {"cvt.rn.f64.s64 %g0, %d1", as([](U a) { return out64(static_cast<double>(int64_t(a))); })},
      {"cvt.rzi.s32.f32 %r0, %f1", as([](U a) { return clamped<int32_t>(std::trunc(f32(a))); })},
      {"cvt.rzi.u32.f32 %r0, %f1", as([](U a) { return clamped<uint32_t>(std::trunc(f32(a))); })},
      {"cvt.rzi.s64.f32 %d0, %f1", as([](U a) { return clamped<int64_t>(std::trunc(f32(a))); })},
      {"cvt.rzi.u64.f64 %d0, %g1", as([](U a) { return clamped<U>(std::trunc(f64(a))); })},
      {"cvt.rni.s32.f32 %r0, %f1", as([=](U a) { return clamped<int32_t>(integer_of(f32(a))); })},
      {"cvt.rmi.s32.f32 %r0, %f1", as([](U a) { return clamped<int32_t>(std::floor(f32(a))); })},
      {"cvt.rpi.s32.f64 %r0, %g1", as([](U a) { return clamped<int32_t>(std::ceil(f64(a))); })},
      {"cvt.rni.f32.f32 %f0, %f1", as([](U a) { return out32(std::nearbyint(f32(a))); })},
      {"cvt.rzi.f32.f32 %f0, %f1", as([](U a) { return out32(std::trunc(f32(a))); })},
      {"cvt.rmi.f32.f32 %f0, %f1", as([](U a) { return out32(std::floor(f32(a))); })},
      {"cvt.rpi.f64.f64 %g0, %g1", as([](U a) { return out64(std::ceil(f64(a))); })},
      {"cvt.sat.f32.f32 %f0, %f1",
       as([](U a) { return out32(f32(a) > 0 ? std::min(f32(a), 1.0f) : 0.0f); })},
      {"cvt.ftz.f32.f32 %f0, %f1", as([](U a) { return out32(flushed(f32(a))); })},
      {"cvt.f64.f32 %g0, %f1", as([](U a) { return out64(f32(a)); })},
      {"cvt.rn.f32.f64 %f0, %g1", as([](U a) { return out32(static_cast<float>(f64(a))); })},
      {"cvt.rn.f16.f32 %h0, %f1", as([](U a) { return to_half(f32(a)); })},
      {"cvt.rn.bf16.f32 %h0, %f1", as([](U a) { return to_brain(f32(a)); })},
      {"cvt.f32.f16 %f0, %h1", as([](U a) { return out32(static_cast<float>(half(a))); })},
      {"cvt.f32.bf16 %f0, %h1", as([](U a) { return out32(static_cast<float>(brain(a))); })},
      {"cvt.rn.relu.bf16.f32 %h0, %f1",
       as([](U a) { return to_brain(f32(a) < 0 ? 0.0L : static_cast<long double>(f32(a))); })},
      {"cvt.rn.bf16x2.f32 %r0, %f1, %f2",
       [](U a, U b, U) { return to_brain(f32(a)) << 16 | to_brain(f32(b)); }},
      {"cvt.rn.f16x2.f32 %r0, %f1, %f2",
       [](U a, U b, U) { return to_half(f32(a)) << 16 | to_half(f32(b)); }},
      {"cvt.rna.tf32.f32 %r0, %f1", as([](U a) {
         // Half of the last place is added to the magnitude; the rest is cut off.
         if (std::isnan(f32(a))) return U{0x7fffe000};
         if (std::isinf(f32(a))) return a & 0xffffffff;
         return (a + 0x1000) & 0xffffe000;
       })}};
  for (const OpcodeCase& c : cases) check(c);
}

}  // namespace tessera::virtual_gpu
