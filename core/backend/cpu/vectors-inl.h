// SPDX-License-Identifier: Apache-2.0
// What vector loops share, compiled once per instruction set (Highway's foreach_target): f32
// vectors from f32 or bf16 memory with tails, sums, exp and tanh. NaN passes through all of it.
#if defined(TESSERA_CORE_BACKEND_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CORE_BACKEND_CPU_VECTORS_INL_H_
#undef TESSERA_CORE_BACKEND_CPU_VECTORS_INL_H_
#else
#define TESSERA_CORE_BACKEND_CPU_VECTORS_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "core/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::RebindToUnsigned<Floats>;
using Ints = hn::RebindToSigned<Floats>;
using Halves = hn::Rebind<uint16_t, Floats>;
using Vec = hn::Vec<Floats>;

inline constexpr Floats kFloats{};

HWY_INLINE int64_t lanes() { return static_cast<int64_t>(hn::Lanes(kFloats)); }
HWY_INLINE Vec splat(float value) { return hn::Set(kFloats, value); }

// A whole vector.
HWY_INLINE Vec load(const float* p) { return hn::LoadU(kFloats, p); }
HWY_INLINE Vec load(const BFloat16* p) {
  const auto half = hn::LoadU(Halves(), reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::PromoteTo(Words(), half)));
}
HWY_INLINE void store(Vec value, float* p) { hn::StoreU(value, kFloats, p); }
// Rounds to nearest even, as BFloat16 does.
HWY_INLINE void store(Vec value, BFloat16* p) {
  const Words words;
  const auto bits = hn::BitCast(words, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(words, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fffu))));
  const auto quiet = hn::Or(upper, hn::Set(words, 0x0040u));
  const auto half = hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(value)), quiet, rounded);
  hn::StoreU(hn::DemoteTo(Halves(), hn::BitCast(Ints(), half)), Halves(),
             reinterpret_cast<uint16_t*>(p));
}

// The first min(left, lanes) elements; the other lanes are `fill`, or are not stored.
template <typename T>
HWY_NOINLINE Vec load_rest(const T* p, int64_t left, float fill) {
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  hn::Store(splat(fill), kFloats, buffer);
  for (int64_t i = 0; i < left; ++i) buffer[i] = static_cast<float>(p[i]);
  return hn::Load(kFloats, buffer);
}
template <typename T>
HWY_NOINLINE void store_rest(Vec value, T* p, int64_t left) {
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  hn::Store(value, kFloats, buffer);
  for (int64_t i = 0; i < left; ++i) p[i] = T(buffer[i]);
}
template <typename T>
HWY_INLINE Vec load(const T* p, int64_t left, float fill = 0.0f) {
  return HWY_LIKELY(left >= lanes()) ? load(p) : load_rest(p, left, fill);
}
template <typename T>
HWY_INLINE void store(Vec value, T* p, int64_t left) {
  if (HWY_LIKELY(left >= lanes())) return store(value, p);
  store_rest(value, p, left);
}

HWY_INLINE float sum_of(Vec value) { return hn::GetLane(hn::SumOfLanes(kFloats, value)); }
HWY_INLINE float max_of(Vec value) { return hn::GetLane(hn::MaxOfLanes(kFloats, value)); }

// The sum of term(i, elements left) over vectors from 0 to n, in four running sums, which hide the
// latency of addition. The order is fixed.
template <typename Term>
HWY_INLINE Vec sum_over(int64_t n, const Term& term) {
  const int64_t step = lanes();
  Vec a = splat(0.0f), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    a = hn::Add(a, term(i, step));
    b = hn::Add(b, term(i + step, step));
    c = hn::Add(c, term(i + 2 * step, step));
    d = hn::Add(d, term(i + 3 * step, step));
  }
  for (; i < n; i += step) a = hn::Add(a, term(i, n - i));
  return hn::Add(hn::Add(a, b), hn::Add(c, d));
}

// e^x to 2 ulp (the polynomial is Cephes's expf); 0 below -87.3, where results would be subnormal,
// and no more than e^88.7, the largest that is finite.
HWY_INLINE Vec exponential(Vec x) {
  const Vec lowest = splat(-87.33654f);
  const Vec y = hn::Min(hn::Max(x, lowest), splat(88.72283f));
  const Vec n = hn::Round(hn::Mul(y, splat(1.44269504088896341f)));
  Vec r = hn::NegMulAdd(n, splat(0.693359375f), y);
  r = hn::NegMulAdd(n, splat(-2.12194440e-4f), r);
  Vec p = splat(1.9875691500e-4f);
  p = hn::MulAdd(p, r, splat(1.3981999507e-3f));
  p = hn::MulAdd(p, r, splat(8.3334519073e-3f));
  p = hn::MulAdd(p, r, splat(4.1665795894e-2f));
  p = hn::MulAdd(p, r, splat(1.6666665459e-1f));
  p = hn::MulAdd(p, r, splat(5.0000001201e-1f));
  p = hn::MulAdd(hn::Mul(r, r), p, hn::Add(r, splat(1.0f)));
  const auto shift = hn::ShiftLeft<23>(hn::ConvertTo(Ints(), n));
  const Vec power = hn::BitCast(kFloats, hn::Add(hn::BitCast(Ints(), p), shift));
  const Vec whole = hn::IfThenZeroElse(hn::Lt(x, lowest), power);
  return hn::IfThenElse(hn::IsNaN(x), x, whole);
}

// tanh to 2 ulp: a polynomial near 0 (Cephes's tanhf), else 1 - 2/(e^2|x| + 1).
HWY_INLINE Vec hyperbolic_tangent(Vec x) {
  const Vec size = hn::Abs(x);
  const Vec one = splat(1.0f);
  const Vec grown = exponential(hn::Add(size, size));
  const Vec far = hn::Sub(one, hn::Div(splat(2.0f), hn::Add(grown, one)));
  const Vec square = hn::Mul(x, x);
  Vec p = splat(-5.70498872745e-3f);
  p = hn::MulAdd(p, square, splat(2.06390887954e-2f));
  p = hn::MulAdd(p, square, splat(-5.37397155531e-2f));
  p = hn::MulAdd(p, square, splat(1.33314422036e-1f));
  p = hn::MulAdd(p, square, splat(-3.33332819422e-1f));
  const Vec near = hn::MulAdd(hn::Mul(p, square), x, x);
  return hn::IfThenElse(hn::Lt(size, splat(0.625f)), near, hn::CopySign(far, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_CORE_BACKEND_CPU_VECTORS_INL_H_
