// SPDX-License-Identifier: Apache-2.0
// Vector code of elementwise ops: one loop over the lanes of the operands per op and kind of lane.
// An op without a row here runs its scalar function (OpDef::element). Included once per target by
// tile_interpreter.cc, like Highway's own -inl.h files.
#include <cmath>

#include <hwy/highway.h>

#include "core/backend/cpu/elementwise/tile_program.h"
#include "core/backend/cpu/simd_convert-inl.h"
#include "core/backend/cpu/simd_math-inl.h"
#include "core/ops/elementwise.h"

#if defined(TESSERA_LANE_FUNCTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_LANE_FUNCTIONS_INL_H_
#undef TESSERA_LANE_FUNCTIONS_INL_H_
#else
#define TESSERA_LANE_FUNCTIONS_INL_H_
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
HWY_INLINE Lanes one() { return hn::Set(Floats(), 1.0f); }
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
  // hn::Max may drop a NaN; the tail keeps it.
  return hn::Add(hn::Max(x, hn::Zero(d)), hn::IfThenElse(hn::IsNaN(x), x, tail));
}
HWY_INLINE Lanes sign_of(Lanes x) {
  const Floats d;
  const Lanes zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  return hn::IfThenElse(hn::Eq(x, zero), zero, hn::CopySign(one, x));
}
HWY_INLINE IntLanes int_sign_of(IntLanes x) {
  const IntLanes plus = hn::Set(Ints(), 1), zero = hn::Zero(Ints());
  return hn::Sub(hn::IfThenElseZero(hn::Gt(x, zero), plus),
                 hn::IfThenElseZero(hn::Lt(x, zero), plus));
}
// A NaN operand gives NaN.
HWY_INLINE Lanes larger(Lanes a, Lanes b) {
  return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
}
HWY_INLINE Lanes smaller(Lanes a, Lanes b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
}

// Loops of instructions. kFunction maps vectors of operands to the vector of the result.
template <auto kFunction>
void unary(const TileInstruction& code, float* const* slots, size_t count) {
  each(slots[code.a], slots[code.result], count, kFunction);
}
template <auto kFunction>
void binary(const TileInstruction& code, float* const* slots, size_t count) {
  each(slots[code.a], slots[code.b], slots[code.result], count, kFunction);
}
template <auto kFunction>
void unary_int(const TileInstruction& code, float* const* slots, size_t count) {
  each(slots[code.a], slots[code.result], count,
       [](Lanes x) HWY_ATTR { return as_floats(kFunction(as_ints(x))); });
}
template <auto kFunction>
void binary_int(const TileInstruction& code, float* const* slots, size_t count) {
  each(slots[code.a], slots[code.b], slots[code.result], count,
       [](Lanes x, Lanes y) HWY_ATTR { return as_floats(kFunction(as_ints(x), as_ints(y))); });
}
template <auto kFunction>
void compare_int(const TileInstruction& code, float* const* slots, size_t count) {
  each(slots[code.a], slots[code.b], slots[code.result], count,
       [](Lanes x, Lanes y) HWY_ATTR { return int_truth(kFunction(as_ints(x), as_ints(y))); });
}

// Highway's sine and cosine are accurate for moderate angles only.
template <float (*kExact)(float), auto kFast>
void angles(const TileInstruction& code, float* const* slots, size_t count) {
  const float* const a = slots[code.a];
  bool moderate = true;
  for (size_t i = 0; i < count; ++i) moderate &= std::abs(a[i]) < 30000.0f;
  if (moderate) return unary<kFast>(code, slots, count);
  for (size_t i = 0; i < count; ++i) slots[code.result][i] = kExact(a[i]);
}

void power(const TileInstruction& code, float* const* slots, size_t count) {
  const float *const a = slots[code.a], *const b = slots[code.b];
  for (size_t i = 0; i < count; ++i) slots[code.result][i] = std::pow(a[i], b[i]);
}

void select(const TileInstruction& code, float* const* slots, size_t count) {
  each(slots[code.a], slots[code.b], slots[code.c], slots[code.result], count,
       [](Lanes on, Lanes yes, Lanes no) HWY_ATTR { return hn::IfThenElse(is_true(on), yes, no); });
}

struct LaneRow {
  const OpDef* op;
  LaneLoops loops;  // On floats, integers and truth values; null: not defined on those.
};

const LaneRow kLaneRows[] = {
    {&kNegOp,
     {unary<[](Lanes x) HWY_ATTR { return hn::Neg(x); }>,
      unary_int<[](IntLanes x) HWY_ATTR { return hn::Neg(x); }>}},
    {&kExpOp, {unary<[](Lanes x) HWY_ATTR { return exp_of(x); }>}},
    {&kLogOp, {unary<[](Lanes x) HWY_ATTR { return log_of(x); }>}},
    {&kSqrtOp, {unary<[](Lanes x) HWY_ATTR { return hn::Sqrt(x); }>}},
    {&kRsqrtOp, {unary<[](Lanes x) HWY_ATTR { return hn::Div(one(), hn::Sqrt(x)); }>}},
    {&kSquareOp, {unary<[](Lanes x) HWY_ATTR { return hn::Mul(x, x); }>}},
    {&kAbsOp,
     {unary<[](Lanes x) HWY_ATTR { return hn::Abs(x); }>,
      unary_int<[](IntLanes x) HWY_ATTR { return hn::Abs(x); }>}},
    {&kSignOp,
     {unary<[](Lanes x) HWY_ATTR { return sign_of(x); }>,
      unary_int<[](IntLanes x) HWY_ATTR { return int_sign_of(x); }>}},
    {&kSinOp, {angles<std::sin, [](Lanes x) HWY_ATTR { return hn::Sin(Floats(), x); }>}},
    {&kCosOp, {angles<std::cos, [](Lanes x) HWY_ATTR { return hn::Cos(Floats(), x); }>}},
    {&kErfOp, {unary<[](Lanes x) HWY_ATTR { return erf_of(x); }>}},
    {&kAddOp,
     {binary<[](Lanes x, Lanes y) HWY_ATTR { return hn::Add(x, y); }>,
      binary_int<[](IntLanes x, IntLanes y) HWY_ATTR { return hn::Add(x, y); }>}},
    {&kSubOp,
     {binary<[](Lanes x, Lanes y) HWY_ATTR { return hn::Sub(x, y); }>,
      binary_int<[](IntLanes x, IntLanes y) HWY_ATTR { return hn::Sub(x, y); }>}},
    {&kMulOp,
     {binary<[](Lanes x, Lanes y) HWY_ATTR { return hn::Mul(x, y); }>,
      binary_int<[](IntLanes x, IntLanes y) HWY_ATTR { return hn::Mul(x, y); }>}},
    {&kDivOp, {binary<[](Lanes x, Lanes y) HWY_ATTR { return hn::Div(x, y); }>}},
    {&kPowOp, {power}},
    {&kMaximumOp,
     {binary<[](Lanes x, Lanes y) HWY_ATTR { return larger(x, y); }>,
      binary_int<[](IntLanes x, IntLanes y) HWY_ATTR { return hn::Max(x, y); }>}},
    {&kMinimumOp,
     {binary<[](Lanes x, Lanes y) HWY_ATTR { return smaller(x, y); }>,
      binary_int<[](IntLanes x, IntLanes y) HWY_ATTR { return hn::Min(x, y); }>}},
    {&kEqualOp,
     {binary<[](Lanes x, Lanes y) HWY_ATTR { return truth(hn::Eq(x, y)); }>,
      compare_int<[](IntLanes x, IntLanes y) HWY_ATTR { return hn::Eq(x, y); }>,
      binary<[](Lanes x, Lanes y) HWY_ATTR { return truth(hn::Eq(x, y)); }>}},
    {&kLessOp,
     {binary<[](Lanes x, Lanes y) HWY_ATTR { return truth(hn::Lt(x, y)); }>,
      compare_int<[](IntLanes x, IntLanes y) HWY_ATTR { return hn::Lt(x, y); }>}},
    {&kLessEqualOp,
     {binary<[](Lanes x, Lanes y) HWY_ATTR { return truth(hn::Le(x, y)); }>,
      compare_int<[](IntLanes x, IntLanes y) HWY_ATTR { return hn::Not(hn::Gt(x, y)); }>}},
    {&kLogicalAndOp,
     {nullptr, nullptr, binary<[](Lanes x, Lanes y) HWY_ATTR { return hn::And(x, y); }>}},
    {&kLogicalOrOp,
     {nullptr, nullptr, binary<[](Lanes x, Lanes y) HWY_ATTR { return hn::Or(x, y); }>}},
    {&kLogicalNotOp, {nullptr, nullptr, unary<[](Lanes x) HWY_ATTR { return hn::Sub(one(), x); }>}},
    {&kIsFiniteOp, {unary<[](Lanes x) HWY_ATTR { return truth(hn::IsFinite(x)); }>}},
    {&kWhereOp, {select, select, select}},
    {&kMaskOp,
     {binary<[](Lanes x, Lanes on) HWY_ATTR { return hn::IfThenElseZero(is_true(on), x); }>,
      binary<[](Lanes x, Lanes on) HWY_ATTR { return hn::IfThenElseZero(is_true(on), x); }>,
      binary<[](Lanes x, Lanes on) HWY_ATTR { return hn::IfThenElseZero(is_true(on), x); }>}},
    {&kTanhOp, {unary<[](Lanes x) HWY_ATTR { return tanh_of(x); }>}},
    {&kSigmoidOp, {unary<[](Lanes x) HWY_ATTR { return sigmoid_of(x); }>}},
    {&kReluOp, {unary<[](Lanes x) HWY_ATTR { return larger(x, hn::Zero(Floats())); }>}},
    {&kSoftplusOp, {unary<[](Lanes x) HWY_ATTR { return softplus_of(x); }>}},
    {&kSiluOp, {unary<[](Lanes x) HWY_ATTR { return hn::Mul(x, sigmoid_of(x)); }>}},
    {&kGeluOp, {unary<[](Lanes x) HWY_ATTR { return hn::Mul(x, normal_cdf(x)); }>}},
    {&kGeluTanhOp, {unary<[](Lanes x) HWY_ATTR { return hn::Mul(x, sigmoid_of(gelu_inner(x))); }>}},
    {&kTanhGradOp,
     {binary<[](Lanes y, Lanes dy) HWY_ATTR { return hn::Mul(dy, hn::NegMulAdd(y, y, one())); }>}},
    {&kSigmoidGradOp, {binary<[](Lanes y, Lanes dy) HWY_ATTR {
       return hn::Mul(dy, hn::Mul(y, hn::Sub(one(), y)));
     }>}},
    {&kReluGradOp, {binary<[](Lanes y, Lanes dy) HWY_ATTR {
       return hn::IfThenElseZero(hn::Gt(y, hn::Zero(Floats())), dy);
     }>}},
    {&kSiluGradOp,
     {binary<[](Lanes x, Lanes dy) HWY_ATTR { return hn::Mul(dy, silu_gradient(x)); }>}},
    {&kGeluGradOp,
     {binary<[](Lanes x, Lanes dy) HWY_ATTR { return hn::Mul(dy, gelu_gradient(x)); }>}},
    {&kGeluTanhGradOp,
     {binary<[](Lanes x, Lanes dy) HWY_ATTR { return hn::Mul(dy, gelu_tanh_gradient(x)); }>}},
};

}  // namespace

LaneLoop conversion_loop_on_target(Conversion conversion) {
  switch (conversion) {
    case Conversion::kRoundToBF16:
      return unary<[](Lanes x) HWY_ATTR { return round_to_bf16(x); }>;
    case Conversion::kFloatToInt:
      return unary<[](Lanes x) HWY_ATTR { return as_floats(hn::ConvertTo(Ints(), x)); }>;
    case Conversion::kIntToFloat:
      return unary<[](Lanes x) HWY_ATTR { return hn::ConvertTo(Floats(), as_ints(x)); }>;
    case Conversion::kFloatToTruth:
      return unary<[](Lanes x) HWY_ATTR { return truth(is_true(x)); }>;
    case Conversion::kIntToTruth:
      return unary<[](Lanes x) HWY_ATTR {
        return int_truth(hn::Not(hn::Eq(as_ints(x), hn::Zero(Ints()))));
      }>;
  }
  return nullptr;
}

const LaneLoops* lane_loops_on_target(const OpDef& op) {
  for (const LaneRow& row : kLaneRows)
    if (row.op == &op) return &row.loops;
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_LANE_FUNCTIONS_INL_H_
