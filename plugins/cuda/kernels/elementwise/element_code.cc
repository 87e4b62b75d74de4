// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/elementwise/element_code.h"

#include <map>

#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"

namespace tessera::cuda {

// Compiled without contraction: a fused multiply-add is written fmaf, where the CPU has one too.
// Integers wrap.
const ElementCode* element_code(const OpDef& op) {
  static const std::map<const OpDef*, ElementCode> kCode = {
      {&kNegOp, {"-{0}", "(int)(0u - (u32){0})", ""}},
      {&kExpOp, {"expf({0})", "", ""}},
      {&kLogOp, {"logf({0})", "", ""}},
      {&kSqrtOp, {"sqrtf({0})", "", ""}},
      {&kRsqrtOp, {"rsqrtf({0})", "", ""}},
      {&kSquareOp, {"{0} * {0}", "", ""}},
      {&kAbsOp, {"fabsf({0})", "abs({0})", ""}},
      {&kSignOp, {"{0} == 0.0f ? 0.0f : copysignf(1.0f, {0})", "({0} > 0) - ({0} < 0)", ""}},
      {&kSinOp, {"sinf({0})", "", ""}},
      {&kCosOp, {"cosf({0})", "", ""}},
      {&kErfOp, {"erff({0})", "", ""}},
      {&kAddOp, {"{0} + {1}", "(int)((u32){0} + (u32){1})", ""}},
      {&kSubOp, {"{0} - {1}", "(int)((u32){0} - (u32){1})", ""}},
      {&kMulOp, {"{0} * {1}", "(int)((u32){0} * (u32){1})", ""}},
      {&kDivOp, {"{0} / {1}", "", ""}},
      {&kPowOp, {"powf({0}, {1})", "", ""}},
      {&kMaximumOp, {"larger({0}, {1})", "max({0}, {1})", ""}},
      {&kMinimumOp, {"smaller({0}, {1})", "min({0}, {1})", ""}},
      {&kEqualOp, {"{0} == {1}", "{0} == {1}", "{0} == {1}"}},
      {&kLessOp, {"{0} < {1}", "{0} < {1}", ""}},
      {&kLessEqualOp, {"{0} <= {1}", "{0} <= {1}", ""}},
      {&kLogicalAndOp, {"", "", "{0} && {1}"}},
      {&kLogicalOrOp, {"", "", "{0} || {1}"}},
      {&kLogicalNotOp, {"", "", "!{0}"}},
      {&kIsFiniteOp, {"fabsf({0}) < __int_as_float(0x7f800000)", "", ""}},
      {&kWhereOp, {"{0} ? {1} : {2}", "{0} ? {1} : {2}", "{0} ? {1} : {2}"}},
      {&kMaskOp, {"{1} ? {0} : 0.0f", "{1} ? {0} : 0", "{1} && {0}"}},
      {&kStopGradientOp, {"{0}", "{0}", "{0}"}},
      {&kTanhOp, {"tanhf({0})", "", ""}},
      {&kSigmoidOp, {"sigmoid({0})", "", ""}},
      {&kReluOp, {"larger({0}, 0.0f)", "", ""}},
      {&kSoftplusOp, {"larger({0}, 0.0f) + log1pf(expf(-fabsf({0})))", "", ""}},
      {&kSiluOp, {"{0} * sigmoid({0})", "", ""}},
      {&kGeluOp, {"{0} * normal_cdf({0})", "", ""}},
      {&kGeluTanhOp, {"{0} * sigmoid(gelu_inner({0}))", "", ""}},
      {&kTanhGradOp, {"{1} * fmaf(-{0}, {0}, 1.0f)", "", ""}},
      {&kSigmoidGradOp, {"{1} * ({0} * (1.0f - {0}))", "", ""}},
      {&kReluGradOp, {"{0} > 0.0f ? {1} : 0.0f", "", ""}},
      {&kSiluGradOp, {"{1} * silu_slope({0})", "", ""}},
      {&kGeluGradOp, {"{1} * gelu_slope({0})", "", ""}},
      {&kGeluTanhGradOp, {"{1} * gelu_tanh_slope({0})", "", ""}},
      {&kRoundE4M3Op, {"round_to<3, -6, 8>({0}, {1})", "", ""}},
      {&kRoundE5M2Op, {"round_to<2, -14, 15>({0}, {1})", "", ""}},
  };
  const auto found = kCode.find(&op);
  return found != kCode.end() ? &found->second : nullptr;
}

const char* const kElementPrelude = R"cuda(
typedef unsigned int u32;
typedef unsigned long long u64;
struct bf16 { unsigned short bits; };
struct truth { unsigned char bits; };

__device__ inline float value_of(float x) { return x; }
__device__ inline int value_of(int x) { return x; }
__device__ inline float value_of(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ inline bool value_of(truth x) { return x.bits != 0; }
__device__ inline void set(float& to, float x) { to = x; }
__device__ inline void set(int& to, int x) { to = x; }
__device__ inline void set(bf16& to, float x) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
}
__device__ inline void set(truth& to, bool x) { to.bits = x; }
__device__ inline float rounded(float x) {
  bf16 narrow;
  set(narrow, x);
  return value_of(narrow);
}

template <int kBytes> struct Word;
template <> struct Word<16> { typedef uint4 Type; };
template <> struct Word<8> { typedef uint2 Type; };
template <> struct Word<4> { typedef u32 Type; };
template <> struct Word<2> { typedef unsigned short Type; };

// The widest access of V elements, and whether an address allows it.
template <typename T, int V> struct Access {
  static constexpr int kBytes = V * sizeof(T) < 16 ? V * sizeof(T) : 16;
  static constexpr int kElements = kBytes / sizeof(T);
  typedef typename Word<kBytes>::Type Type;
  union Piece {
    Type word;
    T elements[kElements];
  };
  __device__ static bool fits(const T* at, int count) {
    return count == V && ((u64)at & (kBytes - 1)) == 0;
  }
};

// V values of which `count` exist, `stride` elements apart.
template <int V, typename T, typename X>
__device__ inline void load(const T* from, int count, long long stride, X (&to)[V]) {
  if constexpr (V > 1) {
    typedef Access<T, V> Wide;
    if (stride == 1 && Wide::fits(from, count)) {
#pragma unroll
      for (int i = 0; i < V; i += Wide::kElements) {
        typename Wide::Piece piece;
        piece.word = *(const typename Wide::Type*)(from + i);
#pragma unroll
        for (int e = 0; e < Wide::kElements; ++e) to[i + e] = value_of(piece.elements[e]);
      }
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < V; ++i) to[i] = i < count ? value_of(from[i * stride]) : X();
}

template <int V, typename T, typename X>
__device__ inline void store(T* to, int count, const X (&from)[V]) {
  if constexpr (V > 1) {
    typedef Access<T, V> Wide;
    if (Wide::fits(to, count)) {
#pragma unroll
      for (int i = 0; i < V; i += Wide::kElements) {
        typename Wide::Piece piece;
#pragma unroll
        for (int e = 0; e < Wide::kElements; ++e) set(piece.elements[e], from[i + e]);
        *(typename Wide::Type*)(to + i) = piece.word;
      }
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < V; ++i)
    if (i < count) set(to[i], from[i]);
}

// A NaN operand gives NaN.
__device__ inline float larger(float a, float b) { return a > b || a != a ? a : b; }
__device__ inline float smaller(float a, float b) { return a < b || a != a ? a : b; }

// The approximate quotient has an error of 2 ulp, and is 0 beyond 2^126.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }
__device__ inline float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * fmaf(x, 1.0f - s, 1.0f);
}

// The distribution function of the standard normal distribution.
__device__ inline float normal_cdf(float x) {
  return fmaf(erff(x * 0.70710678118654752f), 0.5f, 0.5f);
}
__device__ inline float gelu_slope(float x) {
  const float density = expf(x * x * -0.5f) * 0.39894228040143268f;
  return fmaf(x, density, normal_cdf(x));
}

// 2*sqrt(2/pi)*(x + 0.044715*x^3): gelu_tanh is x*sigmoid of it.
__device__ inline float gelu_inner(float x) {
  return x * 1.5957691216057308f * fmaf(x * x, 0.044715f, 1.0f);
}
__device__ inline float gelu_tanh_slope(float x) {
  const float s = sigmoid(gelu_inner(x));
  const float slope = fmaf(x * x, 3.0f * 0.044715f, 1.0f) * 1.5957691216057308f;
  return s * fmaf(x * slope, 1.0f - s, 1.0f);
}

// 2^exponent.
__device__ inline float power(int exponent) { return __int_as_float((exponent + 127) << 23); }

// Float8Format, in core/ops/fp8.h. The scale comes from the exponent of amax, one less if its
// fraction is above 1.75. Adding and subtracting a number whose last digit has the spacing of the
// result rounds to nearest even.
template <int kDigits, int kMinExponent, int kMaxExponent>
__device__ inline float round_to(float x, float amax) {
  if (!(amax < __int_as_float(0x7f800000))) return __int_as_float(0x7fffffff);
  const int bits = __float_as_int(fmaxf(amax, power(-100)));
  const int inverse = (bits >> 23) - 127 + ((bits & 0x7fffff) > 0x600000) - kMaxExponent;
  const float limit = 1.75f * power(kMaxExponent);
  const float scaled = smaller(larger(x * power(-inverse), -limit), limit);
  const float binade = __int_as_float(__float_as_int(scaled) & 0x7f800000);
  const float shift = fmaxf(binade, power(kMinExponent)) * (1.5f * power(23 - kDigits));
  return ((scaled + shift) - shift) * power(inverse);
}
)cuda";

}  // namespace tessera::cuda
