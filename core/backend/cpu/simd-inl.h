// SPDX-License-Identifier: Apache-2.0
// Helpers of vector loops over rows: f32 vectors from f32 or bf16 memory with tails, sums over a
// row and a fast exponential. NaN propagates. Included once per target, as Highway's -inl.h files
// are.
#if defined(TESSERA_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SIMD_INL_H_
#undef TESSERA_SIMD_INL_H_
#else
#define TESSERA_SIMD_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "core/backend/cpu/simd_convert-inl.h"
#include "core/backend/cpu/simd_math-inl.h"
#include "core/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
using Words = hn::RebindToUnsigned<Floats>;
using Ints = hn::RebindToSigned<Floats>;
using Vec = hn::Vec<Floats>;

inline constexpr Floats kFloats{};

HWY_INLINE int64_t lanes() { return static_cast<int64_t>(hn::Lanes(kFloats)); }
HWY_INLINE Vec splat(float value) { return hn::Set(kFloats, value); }

// A whole vector.
template <typename T>
HWY_INLINE Vec load(const T* p) {
  return load_floats(kFloats, p);
}
template <typename T>
HWY_INLINE void store(Vec value, T* p) {
  store_floats(value, kFloats, p);
}

// Load or store the first min(left, lanes) elements. Loads fill the other lanes with `fill`.
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

// The sum of term(i, elements left) over the vectors of [0, n), with four accumulators, which hide
// the latency of addition. The order is fixed.
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

// e^x for x <= 0 (valid up to 88), to 2 ulp. Faster than exp_of: it does not clamp, and returns 0
// below -86.5 instead of subnormal numbers, so that masked scores (-inf) are not slow.
HWY_INLINE Vec falling_exp(Vec x) {
  // Adding and subtracting 1.5·2^23 rounds to an integer, which is left in the lowest bits.
  const Vec rounder = splat(12582912.0f);
  const Vec shifted = hn::MulAdd(x, splat(1.44269504088896341f), rounder);
  const Vec n = hn::Sub(shifted, rounder);
  const Vec r = hn::NegMulAdd(n, splat(-2.12194440e-4f), hn::NegMulAdd(n, splat(0.693359375f), x));
  const Vec p = polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                           4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f, 1.0f, 1.0f);
  const auto power = hn::ShiftLeft<23>(hn::BitCast(Ints(), shifted));
  const Vec scaled = hn::BitCast(kFloats, hn::Add(hn::BitCast(Ints(), p), power));
  return hn::IfThenZeroElse(hn::Lt(x, splat(-86.5f)), scaled);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_SIMD_INL_H_
