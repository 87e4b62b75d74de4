// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/optimizers.h"

#include <cmath>
#include <optional>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/parameter.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, Adam);
REGISTER_TEMPLATE(BaseOptimizer, AdamW);
REGISTER_TEMPLATE(BaseOptimizer, Adafactor);
REGISTER_TEMPLATE(BaseOptimizer, Sgd);

namespace {

Type in_dtype(Type type, DType dtype) {
  type.dtype = dtype;
  return type;
}

constexpr StoredMoments kBothMoments{.first = true, .second = true};
constexpr Noise kFirstNoise{.half = NoiseHalf::kLow};
constexpr Noise kSecondNoise{.half = NoiseHalf::kHigh};

std::vector<Slot> moments(const Type& parameter, const StatePolicy& state) {
  return {{"m", in_dtype(parameter, state.first_moment)},
          {"v", in_dtype(parameter, state.second_moment)}};
}

Updated fused(const UpdateInputs& inputs, const AdamOptions& options) {
  const AdamState next =
      adam_update({inputs.parameter, inputs.slots[0], inputs.slots[1]}, inputs.gradient,
                  inputs.learning_rate, inputs.count, inputs.gradient_scale, inputs.apply, options);
  return {next.parameter, {next.first_moment, next.second_moment}};
}

// β(1-β^t)/(1-β^(t+1)) after t updates: the decay that makes a running mean unbiased.
Tensor bias_corrected(double beta, const Tensor& count) {
  if (beta == 0.0) return constant(0.0, DType::kF32);
  const Tensor power = exp(count * std::log(beta));
  return beta * (1.0 - power) / (1.0 - beta * power);
}

}  // namespace

Adam::Adam(const HParams& p) : BaseOptimizer(p, kBothMoments), p_(p) {}

std::vector<Slot> Adam::slots(std::string_view, const Type& parameter) const {
  return moments(parameter, p_.state);
}

Updated Adam::update(const UpdateInputs& inputs) const {
  if (p_.clip_threshold <= 0.0 && inputs.parameter.dtype() == DType::kF32)
    return fused(inputs, {.beta1 = p_.beta1,
                          .beta2 = p_.beta2,
                          .epsilon = p_.epsilon,
                          .epsilon_root = p_.epsilon_root,
                          .weight_decay = inputs.weight_decay,
                          .bias_corrected_decay = true,
                          .rounding = p_.state.rounding});
  // The cap needs the RMS of the whole tensor's update, which the fused op does not compute.
  const Tensor gradient = scaled_gradient(inputs);
  const Tensor beta1 = bias_corrected(p_.beta1, inputs.count);
  const Tensor beta2 = bias_corrected(p_.beta2, inputs.count);
  const Tensor m = beta1 * old_state(inputs, 0) + (1.0 - beta1) * gradient;
  const Tensor v = beta2 * old_state(inputs, 1) + (1.0 - beta2) * square(gradient);
  Tensor change = m / (sqrt(v + p_.epsilon_root) + p_.epsilon);
  if (p_.clip_threshold > 0.0) change = cap_rms(change, p_.clip_threshold);
  return {decayed_step(inputs, change),
          {stored_state(inputs, 0, m, p_.state.rounding, kFirstNoise),
           stored_state(inputs, 1, v, p_.state.rounding, kSecondNoise)}};
}

AdamW::AdamW(const HParams& p) : BaseOptimizer(p, kBothMoments), p_(p) {}

std::vector<Slot> AdamW::slots(std::string_view, const Type& parameter) const {
  return moments(parameter, p_.state);
}

Updated AdamW::update(const UpdateInputs& inputs) const {
  return fused(inputs, {.beta1 = p_.beta1,
                        .beta2 = p_.beta2,
                        .epsilon = p_.epsilon,
                        .weight_decay = inputs.weight_decay,
                        .rounding = p_.state.rounding});
}

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

Type without(const Type& type, std::string_view axis) {
  Type result = type;
  std::erase_if(result.axes, [&](const Axis& each) { return each.name == axis; });
  return result;
}

// The mean over an axis, reduced, with the layout of the remaining axes.
Tensor mean_over(const Tensor& x, const std::string& axis) {
  return reshard(reduce_mean(x, axis), without(x.type(), axis));
}

// old·decay + new·(1 - decay).
Tensor averaged(const Tensor& decay, const Tensor& old, const Tensor& next) {
  return decay * old + (1.0 - decay) * next;
}

}  // namespace

Adafactor::Adafactor(const HParams& p)
    : BaseOptimizer(p, {.first = p.beta1 > 0.0, .second = true}), p_(p) {}

std::vector<Slot> Adafactor::slots(std::string_view, const Type& parameter) const {
  const Type type = in_dtype(parameter, p_.state.second_moment);
  std::vector<Slot> slots;
  if (const auto factored = factored_axes(type, p_.min_dim_size_to_factor)) {
    slots = {{"v_row", without(type, factored->column)},
             {"v_column", without(type, factored->row)}};
  } else {
    slots = {{"v", type}};
  }
  if (p_.beta1 > 0.0) slots.push_back({"m", in_dtype(parameter, p_.state.first_moment)});
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

Sgd::Sgd(const HParams& p) : BaseOptimizer(p, {.first = p.momentum > 0.0}), p_(p) {
  if (p.nesterov && p.momentum == 0.0)
    fail("Sgd: nesterov needs momentum, which is 0; set momentum");
}

std::vector<Slot> Sgd::slots(std::string_view, const Type& parameter) const {
  if (p_.momentum == 0.0) return {};
  return {{"momentum", in_dtype(parameter, p_.state.first_moment)}};
}

Updated Sgd::update(const UpdateInputs& inputs) const {
  const Tensor gradient = scaled_gradient(inputs);
  if (p_.momentum == 0.0) return {decayed_step(inputs, gradient), {}};
  const Tensor trace = old_state(inputs, 0) * p_.momentum + gradient;
  const Tensor change = p_.nesterov ? trace * p_.momentum + gradient : trace;
  return {decayed_step(inputs, change),
          {stored_state(inputs, 0, trace, p_.state.rounding, kFirstNoise)}};
}

}  // namespace tessera
