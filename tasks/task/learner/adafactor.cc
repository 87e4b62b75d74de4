// SPDX-License-Identifier: Apache-2.0
// The optimizer Adafactor.
#include <optional>

#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/norm.h"
#include "core/ops/reshard.h"
#include "layers/parameter.h"
#include "tasks/task/learner/optimizers.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, Adafactor);

namespace {

// The two largest axes of a tensor, over which its second moment is factored.
struct Factored {
  std::string row;  // The smaller: one statistic for each of its elements.
  std::string column;
};

std::optional<Factored> factored_axes(const Type& type, int64_t least) {
  const Axis* largest = nullptr;
  const Axis* second = nullptr;
  for (const Axis& axis : type.axes) {
    if (&axis == &type.axes[0] && axis.name == kLayersAxis) continue;
    if (largest == nullptr || axis.size >= largest->size) {
      second = largest;
      largest = &axis;
    } else if (second == nullptr || axis.size >= second->size) {
      second = &axis;
    }
  }
  if (second == nullptr || second->size < least) return std::nullopt;
  return Factored{second->name, largest->name};
}

const Moment kMean{"m"}, kSquares{"v", MomentOrder::kSecond};

Type without(const Type& type, std::string_view axis) {
  Type result = type;
  std::erase_if(result.axes, [&](const Axis& each) { return each.name == axis; });
  return result;
}

// The mean over an axis, reduced, with the layout of the remaining axes.
Tensor mean_over(const Tensor& x, const std::string& axis) {
  return reshard(reduce_mean(x, axis), without(x.type(), axis));
}

}  // namespace

Adafactor::Adafactor(const HParams& p)
    : BaseOptimizer(p, p.beta1 > 0.0 ? std::vector{kSquares, kMean} : std::vector{kSquares}),
      p_(p) {}

std::vector<Slot> Adafactor::slots(const StoredWeight& weight) const {
  const Type type = in_dtype(weight.type, p_.state.second_moment);
  std::vector<Slot> slots;
  if (const auto factored = factored_axes(type, p_.min_dim_size_to_factor)) {
    slots = {{"v_row", without(type, factored->column)},
             {"v_column", without(type, factored->row)}};
  } else {
    slots = {{"v", type}};
  }
  if (p_.beta1 > 0.0) slots.push_back({"m", in_dtype(weight.type, p_.state.first_moment)});
  return slots;
}

Updated Adafactor::update(const UpdateInputs& inputs) const {
  const Tensor gradient = scaled_gradient(inputs);
  const Tensor squared = square(gradient) + p_.epsilon1;
  // 1 - t^-exponent, t counting from 1.
  const Tensor decay = p_.decay_adam > 0.0
                           ? bias_corrected(p_.decay_adam, inputs.count)
                           : 1.0 - exp(log(inputs.count + 1.0) * -p_.decay_exponent);

  std::vector<Tensor> next;
  std::vector<Noise> noise = {kSecondNoise};
  Tensor change;
  if (const auto factored = factored_axes(gradient.type(), p_.min_dim_size_to_factor)) {
    const Tensor row = averaged(decay, old_state(inputs, 0), mean_over(squared, factored->column));
    const Tensor column = averaged(decay, old_state(inputs, 1), mean_over(squared, factored->row));
    const Tensor row_mean = mean_over(row, factored->row);
    change = gradient * rsqrt(row / row_mean) * rsqrt(column);
    next = {row, column};
    noise = {{.stream = " (row)"}, {.stream = " (column)"}};
  } else {
    const Tensor v = averaged(decay, old_state(inputs, 0), squared);
    change = gradient * rsqrt(v);
    next = {v};
  }
  if (p_.clip_threshold > 0.0) change = cap_rms(change, p_.clip_threshold);
  if (p_.beta1 > 0.0) {
    change = old_state(inputs, next.size()) * p_.beta1 + change * (1.0 - p_.beta1);
    next.push_back(change);
    noise.push_back(kFirstNoise);
  }
  if (p_.multiply_by_parameter_scale)
    change = change * maximum(rms(inputs.parameter), constant(p_.epsilon2, DType::kF32));
  for (size_t i = 0; i < next.size(); ++i)
    next[i] = stored_state(inputs, i, next[i], p_.state.rounding, noise[i]);
  return {decayed_step(inputs, change), next};
}

double Adafactor::width_factor(const Parameter& parameter) const {
  if (p_.multiply_by_parameter_scale && !parameter.widths.empty())
    fail(
        "mup_base: muP has no rule for Adafactor with updates as large as weights; set "
        "multiply_by_parameter_scale=false");
  return BaseOptimizer::width_factor(parameter);
}

}  // namespace tessera
