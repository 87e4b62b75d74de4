// SPDX-License-Identifier: Apache-2.0
// What each instruction of a tile program does: a vector loop over the lanes of its operands.
// Included once per target by tile_interpreter.cc, in the manner of Highway's -inl.h files.
#include <algorithm>
#include <cmath>

#include <hwy/highway.h>

#include "core/backend/cpu/elementwise/elementwise_program.h"
#include "core/backend/cpu/simd_convert-inl.h"
#include "core/backend/cpu/simd_math-inl.h"
#include "core/base/error.h"

#if defined(TESSERA_ELEMENTWISE_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ELEMENTWISE_CODES_INL_H_
#undef TESSERA_ELEMENTWISE_CODES_INL_H_
#else
#define TESSERA_ELEMENTWISE_CODES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

using Floats = hn::ScalableTag<float>;
using Ints = hn::ScalableTag<int32_t>;
using Lanes = hn::Vec<Floats>;
using IntLanes = hn::Vec<Ints>;

HWY_INLINE Lanes truth(hn::Mask<Floats> mask) {
  return hn::IfThenElseZero(mask, hn::Set(Floats(), 1.0f));
}
HWY_INLINE hn::Mask<Floats> is_true(Lanes x) { return hn::Ne(x, hn::Zero(Floats())); }
HWY_INLINE IntLanes as_ints(Lanes x) { return hn::BitCast(Ints(), x); }
HWY_INLINE Lanes as_floats(IntLanes x) { return hn::BitCast(Floats(), x); }
HWY_INLINE Lanes int_truth(hn::Mask<Ints> mask) {
  return hn::BitCast(Floats(), hn::IfThenElseZero(mask, as_ints(hn::Set(Floats(), 1.0f))));
}

template <class Function>
HWY_INLINE void each(const float* a, float* result, size_t count, const Function& function) {
  const Floats d;
  const size_t width = hn::Lanes(d);
  size_t i = 0;
  for (; i + width <= count; i += width) hn::StoreU(function(hn::LoadU(d, a + i)), d, result + i);
  if (i < count) {
    store_some(function(load_some(d, a + i, count - i)), d, result + i, count - i);
  }
}

template <class Function>
HWY_INLINE void each(const float* a, const float* b, float* result, size_t count,
                     const Function& function) {
  const Floats d;
  const size_t width = hn::Lanes(d);
  size_t i = 0;
  for (; i + width <= count; i += width) {
    hn::StoreU(function(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, result + i);
  }
  if (i < count) {
    const size_t rest = count - i;
    store_some(function(load_some(d, a + i, rest), load_some(d, b + i, rest)), d, result + i, rest);
  }
}

template <class Function>
HWY_INLINE void each(const float* a, const float* b, const float* c, float* result, size_t count,
                     const Function& function) {
  const Floats d;
  const size_t width = hn::Lanes(d);
  size_t i = 0;
  for (; i + width <= count; i += width) {
    const Lanes value = function(hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, c + i));
    hn::StoreU(value, d, result + i);
  }
  if (i < count) {
    const size_t rest = count - i;
    const Lanes value =
        function(load_some(d, a + i, rest), load_some(d, b + i, rest), load_some(d, c + i, rest));
    store_some(value, d, result + i, rest);
  }
}

// Φ(x), the normal distribution function.
HWY_INLINE Lanes normal_cdf(Lanes x) {
  const Floats d;
  const Lanes half = hn::Set(d, 0.5f);
  return hn::MulAdd(erf_of(hn::Mul(x, hn::Set(d, 0.70710678118654752f))), half, half);
}
HWY_INLINE Lanes gelu_gradient(Lanes x) {
  const Floats d;
  const Lanes density =
      hn::Mul(exp_of(hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f))), hn::Set(d, 0.39894228040143268f));
  return hn::MulAdd(x, density, normal_cdf(x));
}

// 2·√(2/π)·(x + 0.044715x³): gelu_tanh is x·sigmoid of it.
constexpr float kGeluA = 1.5957691216057308f, kGeluB = 0.044715f;
HWY_INLINE Lanes gelu_inner(Lanes x) {
  const Floats d;
  const Lanes cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, kGeluB), hn::Set(d, 1.0f));
  return hn::Mul(hn::Mul(x, hn::Set(d, kGeluA)), cubic);
}
HWY_INLINE Lanes gelu_tanh_gradient(Lanes x) {
  const Floats d;
  const Lanes one = hn::Set(d, 1.0f), s = sigmoid_of(gelu_inner(x));
  const Lanes slope =
      hn::Mul(hn::MulAdd(hn::Mul(x, x), hn::Set(d, 3.0f * kGeluB), one), hn::Set(d, kGeluA));
  return hn::Mul(s, hn::MulAdd(hn::Mul(x, slope), hn::Sub(one, s), one));
}
HWY_INLINE Lanes silu_gradient(Lanes x) {
  const Lanes one = hn::Set(Floats(), 1.0f), s = sigmoid_of(x);
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
}
HWY_INLINE Lanes softplus_of(Lanes x) {
  const Floats d;
  const Lanes tail = hn::Log1p(d, exp_of(hn::Neg(hn::Abs(x))));
  // The tail of a NaN is a NaN, whatever the maximum makes of it.
  return hn::Add(hn::Max(x, hn::Zero(d)), hn::IfThenElse(hn::IsNaN(x), x, tail));
}
HWY_INLINE Lanes sign_of(Lanes x) {
  const Floats d;
  const Lanes zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  return hn::IfThenElse(hn::Eq(x, zero), zero, hn::CopySign(one, x));
}
// A NaN operand gives NaN.
HWY_INLINE Lanes larger(Lanes a, Lanes b) {
  return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
}
HWY_INLINE Lanes smaller(Lanes a, Lanes b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
}

// Highway's sine and cosine hold for moderate angles only.
template <class Fast>
void angles(const float* a, float* result, size_t count, float (*exact)(float), const Fast& fast) {
  bool moderate = true;
  for (size_t i = 0; i < count; ++i) moderate &= std::abs(a[i]) < 30000.0f;
  if (moderate) return each(a, result, count, fast);
  for (size_t i = 0; i < count; ++i) result[i] = exact(a[i]);
}

void run_float(const TileInstruction& code, const float* a, const float* b, float* r, size_t n) {
  const Floats d;
  switch (code.code) {
    case Opcode::kCopy:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return x; });
    case Opcode::kNeg:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Neg(x); });
    case Opcode::kExp:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return exp_of(x); });
    case Opcode::kLog:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return log_of(x); });
    case Opcode::kSqrt:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Sqrt(x); });
    case Opcode::kRsqrt:
      return each(a, r, n,
                  [d](Lanes x) HWY_ATTR { return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)); });
    case Opcode::kSquare:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Mul(x, x); });
    case Opcode::kAbs:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Abs(x); });
    case Opcode::kSign:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return sign_of(x); });
    case Opcode::kSin:
      return angles(a, r, n, std::sin, [d](Lanes x) HWY_ATTR { return hn::Sin(d, x); });
    case Opcode::kCos:
      return angles(a, r, n, std::cos, [d](Lanes x) HWY_ATTR { return hn::Cos(d, x); });
    case Opcode::kErf:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return erf_of(x); });
    case Opcode::kTanh:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return tanh_of(x); });
    case Opcode::kSigmoid:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return sigmoid_of(x); });
    case Opcode::kRelu:
      return each(a, r, n, [d](Lanes x) HWY_ATTR { return larger(x, hn::Zero(d)); });
    case Opcode::kSoftplus:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return softplus_of(x); });
    case Opcode::kSilu:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Mul(x, sigmoid_of(x)); });
    case Opcode::kGelu:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Mul(x, normal_cdf(x)); });
    case Opcode::kGeluTanh:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return hn::Mul(x, sigmoid_of(gelu_inner(x))); });
    case Opcode::kRoundToBF16:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return round_to_bf16(x); });
    case Opcode::kAdd:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::Add(x, y); });
    case Opcode::kSub:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::Sub(x, y); });
    case Opcode::kMul:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::Mul(x, y); });
    case Opcode::kDiv:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::Div(x, y); });
    case Opcode::kPow:
      for (size_t i = 0; i < n; ++i) r[i] = std::pow(a[i], b[i]);
      return;
    case Opcode::kMaximum:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return larger(x, y); });
    case Opcode::kMinimum:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return smaller(x, y); });
    case Opcode::kTanhGrad:
      return each(a, b, r, n, [d](Lanes y, Lanes dy) HWY_ATTR {
        return hn::Mul(dy, hn::NegMulAdd(y, y, hn::Set(d, 1.0f)));
      });
    case Opcode::kSigmoidGrad:
      return each(a, b, r, n, [d](Lanes y, Lanes dy) HWY_ATTR {
        return hn::Mul(dy, hn::Mul(y, hn::Sub(hn::Set(d, 1.0f), y)));
      });
    case Opcode::kReluGrad:
      return each(a, b, r, n, [d](Lanes y, Lanes dy) HWY_ATTR {
        return hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), dy);
      });
    case Opcode::kSiluGrad:
      return each(a, b, r, n,
                  [](Lanes x, Lanes dy) HWY_ATTR { return hn::Mul(dy, silu_gradient(x)); });
    case Opcode::kGeluGrad:
      return each(a, b, r, n,
                  [](Lanes x, Lanes dy) HWY_ATTR { return hn::Mul(dy, gelu_gradient(x)); });
    case Opcode::kGeluTanhGrad:
      return each(a, b, r, n,
                  [](Lanes x, Lanes dy) HWY_ATTR { return hn::Mul(dy, gelu_tanh_gradient(x)); });
    case Opcode::kEqual:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return truth(hn::Eq(x, y)); });
    case Opcode::kLess:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return truth(hn::Lt(x, y)); });
    case Opcode::kLessEqual:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return truth(hn::Le(x, y)); });
    case Opcode::kIsFinite:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return truth(hn::IsFinite(x)); });
    case Opcode::kMask:
      return each(a, b, r, n,
                  [](Lanes x, Lanes on) HWY_ATTR { return hn::IfThenElseZero(is_true(on), x); });
    case Opcode::kAnd:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::And(x, y); });
    case Opcode::kOr:
      return each(a, b, r, n, [](Lanes x, Lanes y) HWY_ATTR { return hn::Or(x, y); });
    case Opcode::kNot:
      return each(a, r, n, [d](Lanes x) HWY_ATTR { return hn::Sub(hn::Set(d, 1.0f), x); });
    default:
      CHECK(false, "not a code of floats");
  }
}

void run_int(const TileInstruction& code, const float* a, const float* b, float* r, size_t n) {
  const Floats d;
  const Ints di;
  const auto ints = [&](const auto& function) HWY_ATTR {
    each(a, b, r, n,
         [&](Lanes x, Lanes y) HWY_ATTR { return as_floats(function(as_ints(x), as_ints(y))); });
  };
  const auto compare = [&](const auto& function) HWY_ATTR {
    each(a, b, r, n,
         [&](Lanes x, Lanes y) HWY_ATTR { return int_truth(function(as_ints(x), as_ints(y))); });
  };
  switch (code.code) {
    case Opcode::kAddInt:
      return ints([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Add(x, y); });
    case Opcode::kSubInt:
      return ints([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Sub(x, y); });
    case Opcode::kMulInt:
      return ints([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Mul(x, y); });
    case Opcode::kNegInt:
      return ints([](IntLanes x, IntLanes) HWY_ATTR { return hn::Neg(x); });
    case Opcode::kAbsInt:
      return ints([](IntLanes x, IntLanes) HWY_ATTR { return hn::Abs(x); });
    case Opcode::kSignInt:
      return ints([di](IntLanes x, IntLanes) HWY_ATTR {
        const IntLanes one = hn::Set(di, 1), zero = hn::Zero(di);
        return hn::Sub(hn::IfThenElseZero(hn::Gt(x, zero), one),
                       hn::IfThenElseZero(hn::Lt(x, zero), one));
      });
    case Opcode::kMaximumInt:
      return ints([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Max(x, y); });
    case Opcode::kMinimumInt:
      return ints([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Min(x, y); });
    case Opcode::kEqualInt:
      return compare([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Eq(x, y); });
    case Opcode::kLessInt:
      return compare([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Lt(x, y); });
    case Opcode::kLessEqualInt:
      return compare([](IntLanes x, IntLanes y) HWY_ATTR { return hn::Not(hn::Gt(x, y)); });
    case Opcode::kMaskInt:
      return each(a, b, r, n,
                  [](Lanes x, Lanes on) HWY_ATTR { return hn::IfThenElseZero(is_true(on), x); });
    case Opcode::kFloatToInt:
      return each(a, r, n, [di](Lanes x) HWY_ATTR { return as_floats(hn::ConvertTo(di, x)); });
    case Opcode::kIntToFloat:
      return each(a, r, n, [d](Lanes x) HWY_ATTR { return hn::ConvertTo(d, as_ints(x)); });
    case Opcode::kTruth:
      return each(a, r, n, [](Lanes x) HWY_ATTR { return truth(is_true(x)); });
    case Opcode::kTruthInt:
      return each(a, r, n, [di](Lanes x) HWY_ATTR {
        return int_truth(hn::Not(hn::Eq(as_ints(x), hn::Zero(di))));
      });
    default:
      CHECK(false, "not a code of integers");
  }
}

void run_instruction(const TileInstruction& code, float* const* slots, size_t count) {
  const float* const a = slots[code.a];
  const float* const b = slots[code.b];
  float* const result = slots[code.result];
  if (code.code == Opcode::kSelect || code.code == Opcode::kSelectInt) {
    return each(a, b, slots[code.c], result, count, [](Lanes on, Lanes yes, Lanes no) HWY_ATTR {
      return hn::IfThenElse(is_true(on), yes, no);
    });
  }
  if (code.code < Opcode::kAddInt) return run_float(code, a, b, result, count);
  run_int(code, a, b, result, count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_ELEMENTWISE_CODES_INL_H_
