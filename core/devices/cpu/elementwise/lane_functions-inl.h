// SPDX-License-Identifier: Apache-2.0
// Vector code of elementwise ops: one loop over the lanes of the operands per op and kind of lane.
// An op without a row here runs its scalar function (OpDef::element). Included once per target by
// tile_interpreter.cc, like Highway's own -inl.h files.
#include <cmath>

#include <hwy/highway.h>

#include "core/devices/cpu/elementwise/tile_program.h"
#include "core/devices/cpu/simd-inl.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"

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

using IntVec = hn::Vec<Ints>;

HWY_INLINE Vec one() { return splat(1.0f); }
HWY_INLINE Vec zero() { return splat(0.0f); }
HWY_INLINE Vec truth(hn::Mask<Floats> mask) { return hn::IfThenElseZero(mask, one()); }
HWY_INLINE hn::Mask<Floats> is_true(Vec x) { return hn::Ne(x, zero()); }
HWY_INLINE IntVec as_ints(Vec x) { return hn::BitCast(Ints(), x); }
HWY_INLINE Vec as_floats(IntVec x) { return hn::BitCast(kFloats, x); }
HWY_INLINE Vec int_truth(hn::Mask<Ints> mask) {
  return as_floats(hn::IfThenElseZero(mask, as_ints(one())));
}

// Computes result[i] = function(operands[i]...).
template <class Function, class... Operands>
HWY_INLINE void each(const Function& function, int64_t count, float* result,
                     const Operands*... operands) {
  int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) store(function(load(operands + i)...), result + i);
  const int64_t left = count - i;
  if (left > 0) store(function(load(operands + i, left)...), result + i, left);
}

// Φ(x), the normal distribution function.
HWY_INLINE Vec normal_cdf(Vec x) {
  const Vec half = splat(0.5f);
  return hn::MulAdd(erf_of(hn::Mul(x, splat(0.70710678118654752f))), half, half);
}
HWY_INLINE Vec gelu_gradient(Vec x) {
  const Vec density =
      hn::Mul(exp_of(hn::Mul(hn::Mul(x, x), splat(-0.5f))), splat(0.39894228040143268f));
  return hn::MulAdd(x, density, normal_cdf(x));
}

// 2·√(2/π)·(x + 0.044715x³): gelu_tanh is x·sigmoid of it.
constexpr float kGeluA = 1.5957691216057308f, kGeluB = 0.044715f;
HWY_INLINE Vec gelu_inner(Vec x) {
  const Vec cubic = hn::MulAdd(hn::Mul(x, x), splat(kGeluB), one());
  return hn::Mul(hn::Mul(x, splat(kGeluA)), cubic);
}
HWY_INLINE Vec gelu_tanh_gradient(Vec x) {
  const Vec s = sigmoid_of(gelu_inner(x));
  const Vec slope = hn::Mul(hn::MulAdd(hn::Mul(x, x), splat(3.0f * kGeluB), one()), splat(kGeluA));
  return hn::Mul(s, hn::MulAdd(hn::Mul(x, slope), hn::Sub(one(), s), one()));
}
HWY_INLINE Vec silu_gradient(Vec x) {
  const Vec s = sigmoid_of(x);
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(one(), s), one()));
}
HWY_INLINE Vec softplus_of(Vec x) {
  const Vec tail = hn::Log1p(kFloats, exp_of(hn::Neg(hn::Abs(x))));
  // hn::Max may drop a NaN; the tail keeps it.
  return hn::Add(hn::Max(x, zero()), hn::IfThenElse(hn::IsNaN(x), x, tail));
}
HWY_INLINE Vec sign_of(Vec x) {
  return hn::IfThenElse(hn::Eq(x, zero()), zero(), hn::CopySign(one(), x));
}
HWY_INLINE IntVec int_sign_of(IntVec x) {
  const IntVec plus = hn::Set(Ints(), 1), none = hn::Zero(Ints());
  return hn::Sub(hn::IfThenElseZero(hn::Gt(x, none), plus),
                 hn::IfThenElseZero(hn::Lt(x, none), plus));
}
// A NaN operand gives NaN.
HWY_INLINE Vec larger(Vec a, Vec b) {
  return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
}
HWY_INLINE Vec smaller(Vec a, Vec b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
}

// Rounds as core/ops/fp8.h defines. The scale comes from the exponent of amax, minus one if its
// fraction is above 1.75. Adding and subtracting a number whose last digit has the spacing of the
// result rounds to nearest even.
template <const Float8Format& kFormat>
HWY_INLINE Vec round_to(Vec x, Vec amax) {
  const auto number = [](int value) HWY_ATTR { return hn::Set(Ints(), value); };
  const IntVec bits = as_ints(hn::Max(amax, splat(kLeastAmax)));
  const auto above = hn::Gt(hn::And(bits, number(0x7fffff)), number(0x600000));
  // Exponent of the inverse of the scale, biased by 127.
  const IntVec exponent = hn::Add(hn::ShiftRight<23>(bits), hn::IfThenElseZero(above, number(1)));
  const IntVec inverse = hn::Sub(exponent, number(kFormat.max_exponent));
  const Vec scale = as_floats(hn::ShiftLeft<23>(hn::Sub(number(254), inverse)));
  const Vec limit = splat(largest(kFormat));
  const Vec scaled = smaller(larger(hn::Mul(x, scale), hn::Neg(limit)), limit);
  const Vec binade = as_floats(hn::And(as_ints(scaled), number(0x7f800000)));
  const Vec shift = hn::Mul(hn::Max(binade, splat(power_of_two(kFormat.min_exponent))),
                            splat(1.5f * power_of_two(23 - kFormat.digits)));
  const Vec rounded = hn::Sub(hn::Add(scaled, shift), shift);
  const Vec result = hn::Mul(rounded, as_floats(hn::ShiftLeft<23>(inverse)));
  return hn::IfThenElse(hn::IsFinite(amax), result, hn::NaN(kFloats));
}

// The loops of instructions. kFunction maps vectors of operands to the vector of the result.
template <auto kFunction>
void unary(const TileInstruction& code, float* const* slots, int64_t count) {
  each(kFunction, count, slots[code.result], slots[code.a]);
}
template <auto kFunction>
void binary(const TileInstruction& code, float* const* slots, int64_t count) {
  each(kFunction, count, slots[code.result], slots[code.a], slots[code.b]);
}
template <auto kFunction>
void unary_int(const TileInstruction& code, float* const* slots, int64_t count) {
  unary<[](Vec x) HWY_ATTR { return as_floats(kFunction(as_ints(x))); }>(code, slots, count);
}
template <auto kFunction>
void binary_int(const TileInstruction& code, float* const* slots, int64_t count) {
  binary<[](Vec x, Vec y) HWY_ATTR { return as_floats(kFunction(as_ints(x), as_ints(y))); }>(
      code, slots, count);
}
template <auto kFunction>
void compare_int(const TileInstruction& code, float* const* slots, int64_t count) {
  binary<[](Vec x, Vec y) HWY_ATTR { return int_truth(kFunction(as_ints(x), as_ints(y))); }>(
      code, slots, count);
}

// Highway's sine and cosine are accurate for moderate angles only.
template <float (*kExact)(float), auto kFast>
void angles(const TileInstruction& code, float* const* slots, int64_t count) {
  const float* const a = slots[code.a];
  bool moderate = true;
  for (int64_t i = 0; i < count; ++i) moderate &= std::abs(a[i]) < 30000.0f;
  if (moderate) return unary<kFast>(code, slots, count);
  for (int64_t i = 0; i < count; ++i) slots[code.result][i] = kExact(a[i]);
}

void power(const TileInstruction& code, float* const* slots, int64_t count) {
  const float *const a = slots[code.a], *const b = slots[code.b];
  for (int64_t i = 0; i < count; ++i) slots[code.result][i] = std::pow(a[i], b[i]);
}

void select(const TileInstruction& code, float* const* slots, int64_t count) {
  const auto choose = [](Vec on, Vec yes, Vec no)
                          HWY_ATTR { return hn::IfThenElse(is_true(on), yes, no); };
  each(choose, count, slots[code.result], slots[code.a], slots[code.b], slots[code.c]);
}

struct LaneRow {
  const OpDef* op;
  LaneLoops loops;  // Loops on floats, integers and truth values; null: not defined on those.
};

const LaneRow kLaneRows[] = {
    {&kNegOp,
     {unary<[](Vec x) HWY_ATTR { return hn::Neg(x); }>,
      unary_int<[](IntVec x) HWY_ATTR { return hn::Neg(x); }>}},
    {&kExpOp, {unary<[](Vec x) HWY_ATTR { return exp_of(x); }>}},
    {&kLogOp, {unary<[](Vec x) HWY_ATTR { return log_of(x); }>}},
    {&kSqrtOp, {unary<[](Vec x) HWY_ATTR { return hn::Sqrt(x); }>}},
    {&kRsqrtOp, {unary<[](Vec x) HWY_ATTR { return hn::Div(one(), hn::Sqrt(x)); }>}},
    {&kSquareOp, {unary<[](Vec x) HWY_ATTR { return hn::Mul(x, x); }>}},
    {&kAbsOp,
     {unary<[](Vec x) HWY_ATTR { return hn::Abs(x); }>,
      unary_int<[](IntVec x) HWY_ATTR { return hn::Abs(x); }>}},
    {&kSignOp,
     {unary<[](Vec x) HWY_ATTR { return sign_of(x); }>,
      unary_int<[](IntVec x) HWY_ATTR { return int_sign_of(x); }>}},
    {&kSinOp, {angles<std::sin, [](Vec x) HWY_ATTR { return hn::Sin(kFloats, x); }>}},
    {&kCosOp, {angles<std::cos, [](Vec x) HWY_ATTR { return hn::Cos(kFloats, x); }>}},
    {&kErfOp, {unary<[](Vec x) HWY_ATTR { return erf_of(x); }>}},
    {&kAddOp,
     {binary<[](Vec x, Vec y) HWY_ATTR { return hn::Add(x, y); }>,
      binary_int<[](IntVec x, IntVec y) HWY_ATTR { return hn::Add(x, y); }>}},
    {&kSubOp,
     {binary<[](Vec x, Vec y) HWY_ATTR { return hn::Sub(x, y); }>,
      binary_int<[](IntVec x, IntVec y) HWY_ATTR { return hn::Sub(x, y); }>}},
    {&kMulOp,
     {binary<[](Vec x, Vec y) HWY_ATTR { return hn::Mul(x, y); }>,
      binary_int<[](IntVec x, IntVec y) HWY_ATTR { return hn::Mul(x, y); }>}},
    {&kDivOp, {binary<[](Vec x, Vec y) HWY_ATTR { return hn::Div(x, y); }>}},
    {&kPowOp, {power}},
    {&kMaximumOp,
     {binary<[](Vec x, Vec y) HWY_ATTR { return larger(x, y); }>,
      binary_int<[](IntVec x, IntVec y) HWY_ATTR { return hn::Max(x, y); }>}},
    {&kMinimumOp,
     {binary<[](Vec x, Vec y) HWY_ATTR { return smaller(x, y); }>,
      binary_int<[](IntVec x, IntVec y) HWY_ATTR { return hn::Min(x, y); }>}},
    {&kEqualOp,
     {binary<[](Vec x, Vec y) HWY_ATTR { return truth(hn::Eq(x, y)); }>,
      compare_int<[](IntVec x, IntVec y) HWY_ATTR { return hn::Eq(x, y); }>,
      binary<[](Vec x, Vec y) HWY_ATTR { return truth(hn::Eq(x, y)); }>}},
    {&kLessOp,
     {binary<[](Vec x, Vec y) HWY_ATTR { return truth(hn::Lt(x, y)); }>,
      compare_int<[](IntVec x, IntVec y) HWY_ATTR { return hn::Lt(x, y); }>}},
    {&kLessEqualOp,
     {binary<[](Vec x, Vec y) HWY_ATTR { return truth(hn::Le(x, y)); }>,
      compare_int<[](IntVec x, IntVec y) HWY_ATTR { return hn::Not(hn::Gt(x, y)); }>}},
    {&kLogicalAndOp,
     {nullptr, nullptr, binary<[](Vec x, Vec y) HWY_ATTR { return hn::And(x, y); }>}},
    {&kLogicalOrOp, {nullptr, nullptr, binary<[](Vec x, Vec y) HWY_ATTR { return hn::Or(x, y); }>}},
    {&kLogicalNotOp, {nullptr, nullptr, unary<[](Vec x) HWY_ATTR { return hn::Sub(one(), x); }>}},
    {&kIsFiniteOp, {unary<[](Vec x) HWY_ATTR { return truth(hn::IsFinite(x)); }>}},
    {&kWhereOp, {select, select, select}},
    {&kMaskOp,
     {binary<[](Vec x, Vec on) HWY_ATTR { return hn::IfThenElseZero(is_true(on), x); }>,
      binary<[](Vec x, Vec on) HWY_ATTR { return hn::IfThenElseZero(is_true(on), x); }>,
      binary<[](Vec x, Vec on) HWY_ATTR { return hn::IfThenElseZero(is_true(on), x); }>}},
    {&kTanhOp, {unary<[](Vec x) HWY_ATTR { return tanh_of(x); }>}},
    {&kSigmoidOp, {unary<[](Vec x) HWY_ATTR { return sigmoid_of(x); }>}},
    {&kReluOp, {unary<[](Vec x) HWY_ATTR { return larger(x, zero()); }>}},
    {&kSoftplusOp, {unary<[](Vec x) HWY_ATTR { return softplus_of(x); }>}},
    {&kSiluOp, {unary<[](Vec x) HWY_ATTR { return hn::Mul(x, sigmoid_of(x)); }>}},
    {&kGeluOp, {unary<[](Vec x) HWY_ATTR { return hn::Mul(x, normal_cdf(x)); }>}},
    {&kGeluTanhOp, {unary<[](Vec x) HWY_ATTR { return hn::Mul(x, sigmoid_of(gelu_inner(x))); }>}},
    {&kTanhGradOp,
     {binary<[](Vec y, Vec dy) HWY_ATTR { return hn::Mul(dy, hn::NegMulAdd(y, y, one())); }>}},
    {&kSigmoidGradOp,
     {binary<[](Vec y, Vec dy) HWY_ATTR { return hn::Mul(dy, hn::Mul(y, hn::Sub(one(), y))); }>}},
    {&kReluGradOp,
     {binary<[](Vec y, Vec dy) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(y, zero()), dy); }>}},
    {&kSiluGradOp, {binary<[](Vec x, Vec dy) HWY_ATTR { return hn::Mul(dy, silu_gradient(x)); }>}},
    {&kGeluGradOp, {binary<[](Vec x, Vec dy) HWY_ATTR { return hn::Mul(dy, gelu_gradient(x)); }>}},
    {&kGeluTanhGradOp,
     {binary<[](Vec x, Vec dy) HWY_ATTR { return hn::Mul(dy, gelu_tanh_gradient(x)); }>}},
    {&kRoundE4M3Op, {binary<[](Vec x, Vec amax) HWY_ATTR { return round_to<kE4M3>(x, amax); }>}},
    {&kRoundE5M2Op, {binary<[](Vec x, Vec amax) HWY_ATTR { return round_to<kE5M2>(x, amax); }>}},
};

}  // namespace

LaneLoop conversion_loop_on_target(Conversion conversion) {
  switch (conversion) {
    case Conversion::kRoundToBF16:
      return unary<[](Vec x) HWY_ATTR { return round_to_bf16(x); }>;
    case Conversion::kFloatToInt:
      return unary<[](Vec x) HWY_ATTR { return as_floats(hn::ConvertTo(Ints(), x)); }>;
    case Conversion::kIntToFloat:
      return unary<[](Vec x) HWY_ATTR { return hn::ConvertTo(kFloats, as_ints(x)); }>;
    case Conversion::kFloatToTruth:
      return unary<[](Vec x) HWY_ATTR { return truth(is_true(x)); }>;
    case Conversion::kIntToTruth:
      return unary<[](Vec x) HWY_ATTR {
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
