// SPDX-License-Identifier: Apache-2.0
// Integer, bit and comparison instructions against host arithmetic.
#include "tests/virtual_gpu/opcode_case.h"

namespace tessera::virtual_gpu {
namespace {

template <typename T, typename F>
Host integer(F f) {
  return [f](U a, U b, U c) {
    return word<T>(static_cast<T>(f(static_cast<T>(a), static_cast<T>(b), static_cast<T>(c))));
  };
}
template <typename T>
T value_of(U bits) {
  if constexpr (std::is_same_v<T, float>) return f32(bits);
  if constexpr (std::is_same_v<T, double>) return f64(bits);
  return static_cast<T>(bits);
}
template <typename T, typename F>
Host comparison(F f) {
  return [f](U a, U b, U) { return U{f(value_of<T>(a), value_of<T>(b))}; };
}

// A case of setp on registers of this letter: "setp.lt.f32 %p0, %f1, %f2".
template <typename T, typename F>
void add_comparison(std::vector<OpcodeCase>& cases, const std::string& name,
                    const std::string& type, char letter, F holds) {
  cases.push_back({fmt::format("setp.{}.{} %p0, %{}1, %{}2", name, type, letter, letter),
                   comparison<T>(holds)});
}
template <typename T>
bool are_ordered(T a, T b) {
  return a == a && b == b;  // Not NaN.
}
template <typename T>
void add_equality(std::vector<OpcodeCase>& cases, const std::string& type, char letter) {
  add_comparison<T>(cases, "eq", type, letter, [](T a, T b) { return a == b; });
  add_comparison<T>(cases, "ne", type, letter,
                    [](T a, T b) { return are_ordered(a, b) && a != b; });
}
template <typename T>
void add_order(std::vector<OpcodeCase>& cases, const std::string& type, char letter) {
  add_equality<T>(cases, type, letter);
  add_comparison<T>(cases, "lt", type, letter, [](T a, T b) { return a < b; });
  add_comparison<T>(cases, "le", type, letter, [](T a, T b) { return a <= b; });
  add_comparison<T>(cases, "gt", type, letter, [](T a, T b) { return a > b; });
  add_comparison<T>(cases, "ge", type, letter, [](T a, T b) { return a >= b; });
}
// Comparisons that are true for NaN, and tests for NaN.
template <typename T>
void add_unordered(std::vector<OpcodeCase>& cases, const std::string& type, char letter) {
  add_comparison<T>(cases, "equ", type, letter,
                    [](T a, T b) { return !are_ordered(a, b) || a == b; });
  add_comparison<T>(cases, "neu", type, letter, [](T a, T b) { return a != b; });
  add_comparison<T>(cases, "ltu", type, letter, [](T a, T b) { return !(a >= b); });
  add_comparison<T>(cases, "leu", type, letter, [](T a, T b) { return !(a > b); });
  add_comparison<T>(cases, "gtu", type, letter, [](T a, T b) { return !(a <= b); });
  add_comparison<T>(cases, "geu", type, letter, [](T a, T b) { return !(a < b); });
  add_comparison<T>(cases, "nan", type, letter, [](T a, T b) { return !are_ordered(a, b); });
  add_comparison<T>(cases, "num", type, letter, [](T a, T b) { return are_ordered(a, b); });
}
}  // namespace

std::vector<OpcodeCase> integer_cases() {
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
  return {{"add.s16 %h0, %h1, %h2", integer<int16_t>(add)},
          {"add.s32 %r0, %r1, %r2", integer<int32_t>(add)},
          {"add.u64 %d0, %d1, %d2", integer<U>(add)},
          {"add.s64 %d0, %d1, %d2", integer<int64_t>(add)},
          {"add.s32 %r0, %r1, -7", [](U a, U, U) { return U{static_cast<uint32_t>(a - 7)}; }},
          {"sub.s32 %r0, %r1, %r2", [](U a, U b, U) { return U{static_cast<uint32_t>(a - b)}; }},
          {"sub.s64 %d0, %d1, %d2", [](U a, U b, U) { return a - b; }},
          {"sub.s16 %h0, %h1, %h2", [](U a, U b, U) { return (a - b) & 0xffff; }},
          {"mul.lo.s16 %h0, %h1, %h2", integer<int16_t>(mul)},
          {"mul.lo.s32 %r0, %r1, %r2", integer<int32_t>(mul)},
          {"mul.lo.s64 %d0, %d1, %d2", integer<int64_t>(mul)},
          {"mul.hi.s32 %r0, %r1, %r2", integer<int32_t>(high)},
          {"mul.hi.u32 %r0, %r1, %r2", integer<uint32_t>(high)},
          {"mul.hi.s64 %d0, %d1, %d2", integer<int64_t>(high)},
          {"mul.hi.u64 %d0, %d1, %d2",
           [](U a, U b, U) { return static_cast<U>(static_cast<unsigned __int128>(a) * b >> 64); }},
          {"mul.wide.s32 %d0, %r1, %r2",
           [](U a, U b, U) { return word(int64_t{int32_t(a)} * int32_t(b)); }},
          {"mul.wide.u32 %d0, %r1, %r2", [](U a, U b, U) { return U{uint32_t(a)} * uint32_t(b); }},
          {"mul.wide.s16 %r0, %h1, %h2", [](U a, U b, U) { return word(int16_t(a) * int16_t(b)); }},
          {"mul.wide.u16 %r0, %h1, %h2",
           [](U a, U b, U) { return U{uint32_t{uint16_t(a)} * uint16_t(b)}; }},
          {"mad.lo.s32 %r0, %r1, %r2, %r3", integer<int32_t>(mad)},
          {"mad.lo.u64 %d0, %d1, %d2, %d3", integer<U>(mad)},
          {"mad.wide.s32 %d0, %r1, %r2, %d3",
           [](U a, U b, U c) { return word(int64_t{int32_t(a)} * int32_t(b)) + c; }},
          {"mad.wide.u32 %d0, %r1, %r2, %d3",
           [](U a, U b, U c) { return U{uint32_t(a)} * uint32_t(b) + c; }},
          {"mad.hi.u32 %r0, %r1, %r2, %r3",
           [](U a, U b, U c) { return U{uint32_t((U{uint32_t(a)} * uint32_t(b) >> 32) + c)}; }},
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
          {"min.u64 %d0, %d1, %d2", integer<U>(least)},
          {"max.u32 %r0, %r1, %r2", integer<uint32_t>(most)},
          {"max.s64 %d0, %d1, %d2", integer<int64_t>(most)},
          {"max.u64 %d0, %d1, %d2", integer<U>(most)},
          {"max.s32 %r0, %r1, %r2", integer<int32_t>(most)},
          {"max.s16 %h0, %h1, %h2", integer<int16_t>(most)},
          {"neg.s32 %r0, %r1", integer<int32_t>(negate)},
          {"neg.s64 %d0, %d1", integer<int64_t>(negate)},
          {"abs.s32 %r0, %r1", integer<int32_t>(absolute)},
          {"abs.s64 %d0, %d1", integer<int64_t>(absolute)}};
}

TEST_CASE("Opcodes: integer arithmetic") {
  for (const OpcodeCase& c : integer_cases()) check(c);
}

std::vector<OpcodeCase> bit_cases() {
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
  // bfe as the PTX ISA defines it.
  const auto field = [](U x, U b, U c, int bits, bool sign) -> U {
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
  return {
      {"and.b32 %r0, %r1, %r2", [=](U a, U b, U) { return low(a & b); }},
      {"and.b16 %h0, %h1, %h2", [](U a, U b, U) { return a & b & 0xffff; }},
      {"and.b64 %d0, %d1, %d2", [](U a, U b, U) { return a & b; }},
      {"or.b32 %r0, %r1, %r2", [=](U a, U b, U) { return low(a | b); }},
      {"or.b16 %h0, %h1, %h2", [](U a, U b, U) { return (a | b) & 0xffff; }},
      {"or.b64 %d0, %d1, %d2", [](U a, U b, U) { return a | b; }},
      {"xor.b16 %h0, %h1, %h2", [](U a, U b, U) { return (a ^ b) & 0xffff; }},
      {"xor.b32 %r0, %r1, %r2", [=](U a, U b, U) { return low(a ^ b); }},
      {"xor.b64 %d0, %d1, %d2", [](U a, U b, U) { return a ^ b; }},
      {"not.b32 %r0, %r1", [=](U a, U, U) { return low(~a); }},
      {"not.b64 %d0, %d1", [](U a, U, U) { return ~a; }},
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
      {"shr.u16 %h0, %h1, %r2", [=](U a, U b, U) { return shift(a, b, 16, false, false); }},
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
       [=](U a, U, U) { return low(31 - std::countl_zero(uint32_t(int32_t(a) < 0 ? ~a : a))); }},
      // The distance from the highest bit.
      {"bfind.shiftamt.u32 %r0, %r1",
       [=](U a, U, U) { return low(a) == 0 ? low(~U{0}) : U(std::countl_zero(uint32_t(a))); }},
      {"selp.u16 %h0, %h1, %h2, %p3", [](U a, U b, U c) { return (c & 1 ? a : b) & 0xffff; }},
      {"selp.b16 %h0, %h1, %h2, %p3", [](U a, U b, U c) { return (c & 1 ? a : b) & 0xffff; }},
      {"selp.b32 %r0, %r1, %r2, %p3", [=](U a, U b, U c) { return low(c & 1 ? a : b); }},
      {"selp.u32 %r0, %r1, %r2, %p3", [=](U a, U b, U c) { return low(c & 1 ? a : b); }},
      {"selp.f32 %f0, %f1, %f2, %p3", [=](U a, U b, U c) { return low(c & 1 ? a : b); }},
      {"selp.b64 %d0, %d1, %d2, %p3", [](U a, U b, U c) { return c & 1 ? a : b; }},
      {"selp.u64 %d0, %d1, %d2, %p3", [](U a, U b, U c) { return c & 1 ? a : b; }},
      {"selp.f64 %g0, %g1, %g2, %p3", [](U a, U b, U c) { return c & 1 ? a : b; }},
      {"mov.u16 %h0, %h1", [](U a, U, U) { return a & 0xffff; }},
      {"mov.u64 %d0, %d1", [](U a, U, U) { return a; }},
      {"mov.b32 %r0, {%h1, %h2}", [](U a, U b, U) { return (a & 0xffff) | (b & 0xffff) << 16; }},
      {"mov.b64 %d0, {%r1, %r2}", [=](U a, U b, U) { return low(a) | b << 32; }},
      {"mov.b64 {_, %r0}, %d1", [](U a, U, U) { return a >> 32; }},
      {"mov.b32 {%h0, _}, %r1", [](U a, U, U) { return a & 0xffff; }},
      {"mov.u32 %r0, -5", [=](U, U, U) { return low(~U{4}); }},
      {"mov.f32 %f0, 0f3FC00000", [](U, U, U) { return U{0x3fc00000}; }},
      {"mov.f64 %g0, 0d3FF8000000000000", [](U, U, U) { return U{0x3ff8000000000000}; }}};
}

TEST_CASE("Opcodes: bits") {
  for (const OpcodeCase& c : bit_cases()) check(c);
}

std::vector<OpcodeCase> comparison_cases() {
  std::vector<OpcodeCase> cases = {
      {"setp.hi.u32 %p0, %r1, %r2", comparison<uint32_t>(std::greater<>())},
      {"setp.ls.u32 %p0, %r1, %r2", comparison<uint32_t>(std::less_equal<>())},
      {"setp.gt.ftz.f32 %p0, %f1, %f2",
       comparison<float>([](float a, float b) { return flushed(a) > flushed(b); })},
      {"setp.lt.and.s32 %p0, %r1, %r2, %p3",
       [](U a, U b, U c) { return U{int32_t(a) < int32_t(b) && (c & 1)}; }},
      {"setp.lt.or.s32 %p0, %r1, %r2, !%p3",
       [](U a, U b, U c) { return U{int32_t(a) < int32_t(b) || !(c & 1)}; }},
      {"setp.eq.xor.f32 %p0, %f1, %f2, %p3",
       [](U a, U b, U c) { return U{(f32(a) == f32(b)) != bool(c & 1)}; }},
      {"setp.gt.s32 %p4|%p0, %r1, %r2", [](U a, U b, U) { return U{!(int32_t(a) > int32_t(b))}; }}};
  add_equality<uint32_t>(cases, "b32", 'r');
  add_equality<U>(cases, "b64", 'd');
  add_order<int16_t>(cases, "s16", 'h');
  add_order<uint16_t>(cases, "u16", 'h');
  add_order<int32_t>(cases, "s32", 'r');
  add_order<uint32_t>(cases, "u32", 'r');
  add_order<int64_t>(cases, "s64", 'd');
  add_order<U>(cases, "u64", 'd');
  add_order<float>(cases, "f32", 'f');
  add_order<double>(cases, "f64", 'g');
  add_unordered<float>(cases, "f32", 'f');
  add_unordered<double>(cases, "f64", 'g');
  return cases;
}

TEST_CASE("Opcodes: comparisons") {
  for (const OpcodeCase& c : comparison_cases()) check(c);
}

}  // namespace tessera::virtual_gpu
