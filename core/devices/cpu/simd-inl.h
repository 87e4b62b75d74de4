// SPDX-License-Identifier: Apache-2.0
// Helpers of vector loops: f32 vectors from f32 or bf16 memory with tails, elementary functions,
// and sums over a row. NaN propagates. Included once per target, as Highway's -inl.h files are.
#if defined(TESSERA_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SIMD_INL_H_
#undef TESSERA_SIMD_INL_H_
#else
#define TESSERA_SIMD_INL_H_
#endif

#include <cstdint>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "core/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads and stores of whole vectors, unaligned; bf16 is rounded to nearest even, as
// core/base/dtype.h does.
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const BFloat16* from) {
  const hn::Rebind<uint16_t, D> narrow;
  const hn::Rebind<uint32_t, D> wide;
  const auto bits = hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
}

// The bf16 bits of the rounded value, in the lower half of each lane.
template <class V>
HWY_INLINE hn::Vec<hn::RebindToSigned<hn::DFromV<V>>> rounded_bits(V value) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const auto word = hn::BitCast(du, value);
  const auto upper = hn::ShiftRight<16>(word);
  const auto odd = hn::And(upper, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(word, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto quiet = hn::Or(upper, hn::Set(du, 0x0040u));
  return hn::BitCast(di, hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded));
}

template <class V>
HWY_INLINE V round_to_bf16(V value) {
  const hn::DFromV<V> d;
  return hn::BitCast(d, hn::ShiftLeft<16>(rounded_bits(value)));
}

template <class D>
HWY_INLINE void store_floats(hn::Vec<D> value, D d, float* to) {
  hn::StoreU(value, d, to);
}
template <class D>
HWY_INLINE void store_floats(hn::Vec<D> value, D, BFloat16* to) {
  const hn::Rebind<uint16_t, D> narrow;
  hn::StoreU(hn::DemoteTo(narrow, rounded_bits(value)), narrow, reinterpret_cast<uint16_t*>(to));
}

// Elementary functions, accurate to a few ulp; NaN and infinities give the results of the standard
// library.

// Evaluates a polynomial by Horner's rule, coefficients from the highest power down.
template <class V>
HWY_INLINE V horner(V, V sum) {
  return sum;
}
template <class V, typename... Rest>
HWY_INLINE V horner(V x, V sum, float next, Rest... rest) {
  const hn::DFromV<V> d;
  return horner(x, hn::MulAdd(sum, x, hn::Set(d, next)), rest...);
}
template <class V, typename... Rest>
HWY_INLINE V polynomial(V x, float first, Rest... rest) {
  const hn::DFromV<V> d;
  return horner(x, hn::Set(d, first), rest...);
}

// Clamps x to [low, high]; NaN stays NaN.
template <class V>
HWY_INLINE V clamped(V x, float low, float high) {
  const hn::DFromV<V> d;
  const V lowest = hn::Set(d, low), highest = hn::Set(d, high);
  x = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
  return hn::IfThenElse(hn::Gt(x, highest), highest, x);
}

// Computes e^x: x = n·ln 2 + r, a polynomial in r (Cephes), scaled by 2^n in two steps, so that
// subnormal numbers and infinity are reached.
template <class V>
HWY_INLINE V exp_of(V x) {
  const hn::DFromV<V> d;
  const hn::RebindToSigned<decltype(d)> di;
  x = clamped(x, -104.0f, 89.0f);
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  const V whole = hn::ConvertTo(d, n);
  V r = hn::NegMulAdd(whole, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(whole, hn::Set(d, -2.12194440e-4f), r);
  const V p = polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                         1.6666665459e-1f, 5.0000001201e-1f);
  const V result = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto half = hn::ShiftRight<1>(n);
  const auto bias = hn::Set(di, 127);
  const V scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(n, half), bias)));
  return hn::Mul(hn::Mul(result, scale1), scale2);
}

template <class V>
HWY_INLINE V log_of(V x) {
  const hn::DFromV<V> d;
  const V zero = hn::Zero(d), infinity = hn::Inf(d);
  V y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  // Negative or NaN.
  return hn::IfThenElse(hn::Not(hn::Ge(x, zero)), hn::NaN(d), y);
}

// A rational minimax approximation, odd over even (as in Eigen); ±1 in f32 beyond the clamp.
template <class V>
HWY_INLINE V tanh_of(V input) {
  const V x = clamped(input, -7.99881172180175781f, 7.99881172180175781f);
  const V x2 = hn::Mul(x, x);
  const V p = polynomial(x2, -2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f,
                         5.12229709037114e-08f, 1.48572235717979e-05f, 6.37261928875436e-04f,
                         4.89352455891786e-03f);
  const V q = polynomial(x2, 1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f,
                         4.89352518554385e-03f);
  return hn::Div(hn::Mul(x, p), q);
}

// A rational approximation like tanh_of.
template <class V>
HWY_INLINE V erf_of(V input) {
  const V x = clamped(input, -4.0f, 4.0f);
  const V x2 = hn::Mul(x, x);
  const V p = polynomial(x2, -2.72614225801306e-10f, 2.77068142495902e-08f, -2.10102402082508e-06f,
                         -5.69250639462346e-05f, -7.34990630326855e-04f, -2.95459980854025e-03f,
                         -1.60960333262415e-02f);
  const V q = polynomial(x2, -1.45660718464996e-05f, -2.13374055278905e-04f, -1.68282697438203e-03f,
                         -7.37332916720468e-03f, -1.42647390514189e-02f);
  return hn::Div(hn::Mul(x, p), q);
}

template <class V>
HWY_INLINE V sigmoid_of(V x) {
  const hn::DFromV<V> d;
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp_of(hn::Neg(x))));
}

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

// Returns the sum of term(i, elements left) over the vectors of [0, n), with four accumulators,
// which hide the latency of addition. The order is fixed.
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

// Computes e^x for x <= 0 (valid up to 88), to 2 ulp. Faster than exp_of: it does not clamp, and
// returns 0 below -86.5 instead of subnormal numbers, so that masked scores (-inf) are not slow.
HWY_INLINE Vec falling_exp(Vec x) {
  // Adding and subtracting 1.5·2^23 rounds to an integer, which remains in the lowest bits.
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

// Caps logits softly, cap·tanh(x/cap), and computes the gradient `slope` through the cap; z are the
// capped logits. A cap of 0 means none.
HWY_INLINE Vec capped(Vec logits, float cap) {
  if (cap <= 0.0f) return logits;
  return hn::Mul(tanh_of(hn::Mul(logits, splat(1.0f / cap))), splat(cap));
}
HWY_INLINE Vec through_cap(Vec slope, Vec z, float cap) {
  if (cap <= 0.0f) return slope;
  const Vec part = hn::Mul(z, splat(1.0f / cap));
  return hn::Mul(slope, hn::NegMulAdd(part, part, splat(1.0f)));
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_SIMD_INL_H_
