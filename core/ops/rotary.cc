// SPDX-License-Identifier: Apache-2.0
#include "core/ops/rotary.h"

#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

constexpr AttributeName<double> kMaxTimescale{"max_timescale"}, kMinTimescale{"min_timescale"};
constexpr AttributeName<bool> kInterleaved{"interleaved"}, kInverse{"inverse"};
// Only nodes with a stretch have these.
constexpr AttributeName<double> kStretchFactor{"stretch_factor"}, kStretchLow{"stretch_low"},
    kStretchHigh{"stretch_high"}, kStretchLength{"stretch_length"},
    kStretchIndexStep{"stretch_index_step"};
constexpr AttributeName<std::vector<double>> kDivisors{"divisors"};

// Linear in x: a partial sum stays partial.
Types infer_rotary(const InferContext& context) {
  refuse_maximum(context);
  refuse_partial(context, 1);
  const Type& x = context.inputs[0];
  const Axis& axis = unsplit_last_axis_of(context, 0, context.attributes.get(key::kAxis));
  check_floating_operand(context, 0);
  if (axis.size % 2 != 0)
    refuse(context, "{}={} is odd; it is rotated in pairs", axis.name, axis.size);
  check_dtype(context, 1, DType::kI32);
  check_agreement(context, 0, 1);
  for (const Axis& of_positions : context.inputs[1].axes) {
    axis_of(context, 0, of_positions.name);
    if (of_positions.name == axis.name)
      refuse(context, "{} has the rotated axis {}", context.names[1], axis.name);
  }
  return {x};
}

// Both elements of each pair, and the inverse operation.
struct Pairs {
  Tensor first, second;
};
Pairs pairs_of(const Tensor& x, const std::string& axis, bool interleaved) {
  const int64_t half = x.size(axis) / 2;
  if (!interleaved) return {slice(x, axis, 0, half), slice(x, axis, half, 2 * half)};
  const Tensor split = split_axis(x, axis, {.name = axis, .size = half}, {.name = "of", .size = 2});
  const auto member = [&](int64_t i) {
    const Tensor column = slice(split, "of", i, i + 1);
    return merge_axes(column, axis, "of", axis);
  };
  return {member(0), member(1)};
}
Tensor joined(const Pairs& pairs, const std::string& axis, bool interleaved) {
  if (!interleaved) return concat({pairs.first, pairs.second}, axis);
  const auto column = [&](const Tensor& x) {
    return split_axis(x, axis, {.name = axis, .size = x.size(axis)}, {.name = "of", .size = 1});
  };
  return merge_axes(concat({column(pairs.first), column(pairs.second)}, "of"), axis, "of", axis);
}

Tensor stretched(const Tensor& frequency, const Tensor& pair,
                 const std::optional<RotaryStretch>& stretch) {
  if (!stretch) return frequency;
  const auto& [factor, low, high, length, index_step, divisors] = *stretch;
  const double slowed = 1.0 / factor;
  const Tensor turns = frequency * (length / (2.0 * std::numbers::pi)) + pair * index_step;
  const Tensor zero = constant(0.0, frequency.dtype()), one = constant(1.0, frequency.dtype());
  const Tensor kept = minimum(maximum((turns - low) / (high - low), zero), one);
  return frequency * (kept * (1.0 - slowed) + slowed);
}

// The frequencies divided by these numbers.
Tensor divided(const Tensor& frequency, const std::string& axis,
               const std::vector<double>& divisors) {
  if (divisors.empty()) return frequency;
  Tensors inverse;
  for (const double divisor : divisors)
    inverse.push_back(constant(1.0 / divisor, frequency.dtype(), {{.name = axis, .size = 1}}));
  return frequency * (inverse.size() == 1 ? inverse[0] : concat(inverse, axis));
}

Tensors decompose_rotary(const Node& node, std::span<const Tensor> inputs) {
  const RotaryAttributes rotary(node.attributes);
  const double min = rotary.min_timescale, max = rotary.max_timescale;
  const Tensor x = widened(inputs[0]);
  const int64_t half = x.size(rotary.axis) / 2;

  const Tensor pair = cast(iota({.name = rotary.axis, .size = half}), x.dtype());
  const Tensor frequency =
      stretched(exp(pair * (-std::log(max / min) / static_cast<double>(half)) - std::log(min)),
                pair, rotary.stretch);
  const Tensor angle =
      cast(inputs[1], x.dtype()) * divided(frequency, rotary.axis, rotary.divisors);
  const Tensor cosine = cos(angle), sine = sin(angle) * (rotary.inverse ? -1.0 : 1.0);
  const Pairs before = pairs_of(x, rotary.axis, rotary.interleaved);
  const Pairs after = {before.first * cosine - before.second * sine,
                       before.second * cosine + before.first * sine};
  return {as_dtype(joined(after, rotary.axis, rotary.interleaved), inputs[0].dtype())};
}

// The transpose of a rotation is its inverse.
Tensors vjp_rotary(const VjpContext& context) {
  Attributes attributes = context.node.attributes;
  attributes.set(kInverse, !attributes.get(kInverse));
  return {trace_op(*context.node.op, {context.cotangents[0], context.inputs[1]}, attributes,
                   context.node.site),
          Tensor()};
}

}  // namespace

RotaryAttributes::RotaryAttributes(const Attributes& attributes)
    : axis(attributes.get(key::kAxis)),
      min_timescale(attributes.get(kMinTimescale)),
      max_timescale(attributes.get(kMaxTimescale)),
      interleaved(attributes.get(kInterleaved)),
      inverse(attributes.get(kInverse)),
      divisors(attributes.get_or(kDivisors, {})) {
  if (attributes.has(kStretchFactor))
    stretch = {.factor = attributes.get(kStretchFactor),
               .low = attributes.get(kStretchLow),
               .high = attributes.get(kStretchHigh),
               .length = attributes.get(kStretchLength),
               .index_step = attributes.get_or(kStretchIndexStep, 0.0)};
}

const Op kRotaryOp{{.name = "rotary",
                    .infer = infer_rotary,
                    .vjp = vjp_rotary,
                    .decomposition = decompose_rotary,
                    .flops = flops_per_element<3>}};

Tensor rotary(Operand x, Operand positions, std::string_view axis, double max_timescale,
              double min_timescale, RotaryStyle style, const RotaryStretch& stretch) {
  Attributes attributes = {{key::kAxis, axis},
                           {kMaxTimescale, max_timescale},
                           {kMinTimescale, min_timescale},
                           {kInterleaved, style == RotaryStyle::kInterleaved},
                           {kInverse, false}};
  if (stretch.factor != 1.0) {
    const bool has_argument = stretch.length > 0.0 || stretch.index_step != 0.0;
    if (!(stretch.factor > 0.0 && stretch.low < stretch.high && has_argument))
      fail(
          "rotary: a stretch of factor {}, from {} to {} turns in {} positions; expected a factor "
          "and a length above 0, and low below high",
          stretch.factor, stretch.low, stretch.high, stretch.length);
    attributes.set(kStretchFactor, stretch.factor);
    attributes.set(kStretchLow, stretch.low);
    attributes.set(kStretchHigh, stretch.high);
    attributes.set(kStretchLength, stretch.length);
    if (stretch.index_step != 0.0) attributes.set(kStretchIndexStep, stretch.index_step);
  }
  if (!stretch.divisors.empty()) {
    const auto pairs = static_cast<size_t>(x.tensor.size(axis) / 2);
    if (stretch.divisors.size() != pairs)
      fail("rotary: {} divisors for {} pairs of {}", stretch.divisors.size(), pairs, axis);
    attributes.set(kDivisors, stretch.divisors);
  }
  const Tensor y = trace_op(kRotaryOp, {axis_last(x, axis), positions.tensor}, attributes, x.site);
  return in_order_of({y, x.site}, x.tensor.type());
}

}  // namespace tessera
