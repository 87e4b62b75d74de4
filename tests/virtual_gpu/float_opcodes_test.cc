// SPDX-License-Identifier: Apache-2.0
// Float instructions and conversions against host arithmetic.
#include <cfenv>
#include <limits>

#include "tests/virtual_gpu/opcode_case.h"

namespace tessera::virtual_gpu {
namespace {

template <typename F>
Host real(F f) {
  return [f](U a, U b, U c) { return out32(static_cast<float>(f(f32(a), f32(b), f32(c)))); };
}
template <typename F>
Host real64(F f) {
  return [f](U a, U b, U c) { return out64(f(f64(a), f64(b), f64(c))); };
}
// Calls a function with another rounding mode of the host.
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
// Converts to bf16 and f16 by search among neighbours: slow, but independent of the interpreter.
double brain(U bits) { return f32((bits & 0xffff) << 16); }
double half(U bits) {
  const int exponent = bits >> 10 & 31;
  const double mantissa = static_cast<double>(bits & 1023) / 1024;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * INFINITY;
  return exponent ? sign * (1 + mantissa) * std::exp2(exponent - 15)
                  : sign * mantissa * std::exp2(-14);
}
// Returns the nearest 16-bit value, ties to even; `value` is monotonic in its lower 15 bits.
U nearest16(long double x, double (*value)(U), U infinity) {
  if (std::isnan(x)) return 0x7fff;
  const U sign = std::signbit(x) ? 0x8000 : 0;
  const long double size = std::fabs(x);
  U low = 0, high = infinity;
  while (high - low > 1) {
    const U middle = (low + high) / 2;
    (value(middle) <= size ? low : high) = middle;
  }
  if (size >= value(infinity - 1)) {  // Infinity is the next value of the grid.
    const long double last = value(infinity - 1), step = last - value(infinity - 2);
    return sign | (size >= last + step / 2 ? infinity : infinity - 1);
  }
  const long double below = size - value(low), above = value(high) - size;
  return sign | (below < above || (below == above && !(low & 1)) ? low : high);
}
U to_brain(long double x) { return nearest16(x, brain, 0x7f80); }
U to_half(long double x) { return nearest16(x, half, 0x7c00); }

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

std::vector<OpcodeCase> float_cases() {
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
  return {
      {"add.f32 %f0, %f1, %f2", real(add)},
      {"add.rn.f32 %f0, %f1, 0f3F800000", real([](float a, float, float) { return a + 1; })},
      {"sub.f32 %f0, %f1, %f2", real([](float a, float b, float) { return a - b; })},
      {"sub.rn.f32 %f0, %f1, %f2", real([](float a, float b, float) { return a - b; })},
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
      {"div.approx.f32 %f0, %f1, %f2", real([](float a, float b, float) { return a / b; }),
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
      {"rcp.approx.ftz.f32 %f0, %f1",
       real([](float a, float, float) { return flushed(1 / flushed(a)); }), kApproximate},
      {"add.f64 %g0, %g1, %g2", real64(add)},
      {"add.rn.f64 %g0, %g1, %g2", real64(add)},
      {"sub.f64 %g0, %g1, %g2", real64([](double a, double b, double) { return a - b; })},
      {"mul.f64 %g0, %g1, %g2", real64(multiply)},
      {"mul.rn.f64 %g0, %g1, %g2", real64(multiply)},
      {"fma.rn.f64 %g0, %g1, %g2, %g3", real64(fused)},
      {"div.rn.f64 %g0, %g1, %g2", real64([](double a, double b, double) { return a / b; })},
      {"rcp.rn.f64 %g0, %g1", real64([](double a, double, double) { return 1 / a; })},
      {"sqrt.rn.f64 %g0, %g1", real64([](double a, double, double) { return std::sqrt(a); })},
      {"min.f64 %g0, %g1, %g2", real64(least)},
      {"max.f64 %g0, %g1, %g2", real64(most)},
      {"neg.f64 %g0, %g1", real64([](double a, double, double) { return -a; })},
      {"abs.f64 %g0, %g1", real64([](double a, double, double) { return std::fabs(a); })}};
}

TEST_CASE("Opcodes: f32 and f64") {
  for (const OpcodeCase& c : float_cases()) check(c);
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

std::vector<OpcodeCase> conversion_cases() {
  const auto integer_of = [](double x) { return std::nearbyint(x); };
  const auto as = [](auto f) { return Host([f](U a, U, U) { return static_cast<U>(f(a)); }); };
  return {
      {"cvt.u32.u16 %r0, %h1", as([](U a) { return uint16_t(a); })},
      {"cvt.s32.s16 %r0, %h1", as([](U a) { return uint32_t(int16_t(a)); })},
      {"cvt.s32.s8 %r0, %r1", as([](U a) { return uint32_t(int8_t(a)); })},
      {"cvt.u32.u8 %r0, %r1", as([](U a) { return uint8_t(a); })},
      {"cvt.u16.u32 %h0, %r1", as([](U a) { return uint16_t(a); })},
      {"cvt.s64.s32 %d0, %r1", as([](U a) { return int64_t{int32_t(a)}; })},
      {"cvt.u64.u32 %d0, %r1", as([](U a) { return uint32_t(a); })},
      {"cvt.u64.u16 %d0, %h1", as([](U a) { return uint16_t(a); })},
      {"cvt.u32.u64 %r0, %d1", as([](U a) { return uint32_t(a); })},
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
      {"cvt.rni.f64.f64 %g0, %g1", as([](U a) { return out64(std::nearbyint(f64(a))); })},
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
       [](U a, U b, U) { return to_half(f32(a)) << 16 | to_half(f32(b)); }}};
}

TEST_CASE("Opcodes: conversions") {
  for (const OpcodeCase& c : conversion_cases()) check(c);
}

}  // namespace tessera::virtual_gpu
