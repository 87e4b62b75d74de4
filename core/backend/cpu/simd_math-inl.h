// SPDX-License-Identifier: Apache-2.0
// Elementary functions on Highway vectors of floats, accurate to a few ulp; NaN and infinities give
// the results of the standard library. Included once per target, as Highway's -inl.h files are.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#if defined(TESSERA_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SIMD_MATH_INL_H_
#undef TESSERA_SIMD_MATH_INL_H_
#else
#define TESSERA_SIMD_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Horner's rule, coefficients from the highest power down.
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

// x clamped to [low, high]; NaN stays NaN.
template <class V>
HWY_INLINE V clamped(V x, float low, float high) {
  const hn::DFromV<V> d;
  const V lowest = hn::Set(d, low), highest = hn::Set(d, high);
  x = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
  return hn::IfThenElse(hn::Gt(x, highest), highest, x);
}

// e^x: x = n·ln 2 + r, a polynomial in r (Cephes), scaled by 2^n in two steps, so that subnormal
// numbers and infinity are reached.
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

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_SIMD_MATH_INL_H_
