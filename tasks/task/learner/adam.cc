// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/adam.h"

#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/optimizer.h"
#include "core/ops/reshard.h"
#include "layers/parameter.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, Adam);
REGISTER_TEMPLATE(BaseOptimizer, AdamW);
REGISTER_TEMPLATE(BaseOptimizer, Lamb);
REGISTER_TEMPLATE(BaseOptimizer, ScheduleFreeAdamW);

namespace {

const Moment kFirst{"m", MomentOrder::kFirst}, kSecond{"v", MomentOrder::kSecond};

Updated fused(const UpdateInputs& inputs, const AdamOptions& options) {
  const AdamState next =
      adam_update({inputs.parameter, inputs.slots[0], inputs.slots[1]}, inputs.gradient,
                  inputs.learning_rate, inputs.count, inputs.gradient_scale, inputs.apply, options);
  return {next.parameter, {next.first_moment, next.second_moment}};
}

}  // namespace

Adam::Adam(const HParams& p) : BaseOptimizer(p, {kFirst, kSecond}), p_(p) {}

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
  const Tensor m = averaged(beta1, old_state(inputs, 0), gradient);
  const Tensor v = averaged(beta2, old_state(inputs, 1), square(gradient));
  Tensor change = m / (sqrt(v + p_.epsilon_root) + p_.epsilon);
  if (p_.clip_threshold > 0.0) change = cap_rms(change, p_.clip_threshold);
  return {decayed_step(inputs, change), stored(inputs, {m, v})};
}

AdamW::AdamW(const HParams& p)
    : BaseOptimizer(p, p.amsgrad
                           ? std::vector{kFirst, kSecond, Moment{"v_max", MomentOrder::kSecond}}
                           : std::vector{kFirst, kSecond}),
      p_(p) {}

Updated AdamW::update(const UpdateInputs& inputs) const {
  if (!p_.amsgrad)
    return fused(inputs, {.beta1 = p_.beta1,
                          .beta2 = p_.beta2,
                          .epsilon = p_.epsilon,
                          .weight_decay = inputs.weight_decay,
                          .rounding = p_.state.rounding});
  const Tensor gradient = scaled_gradient(inputs);
  const Tensor m = averaged(p_.beta1, old_state(inputs, 0), gradient);
  const Tensor v = averaged(p_.beta2, old_state(inputs, 1), square(gradient));
  const Tensor v_max = maximum(old_state(inputs, 2), v);
  const Tensor mean = m / bias_correction(p_.beta1, inputs.count);
  const Tensor variance = v_max / bias_correction(p_.beta2, inputs.count);
  return {decayed_step(inputs, mean / (sqrt(variance) + p_.epsilon)),
          stored(inputs, {m, v, v_max})};
}

Lamb::Lamb(const HParams& p) : BaseOptimizer(p, {kFirst, kSecond}), p_(p) {}

Updated Lamb::update(const UpdateInputs& inputs) const {
  const Tensor gradient = scaled_gradient(inputs);
  const Tensor m = averaged(p_.beta1, old_state(inputs, 0), gradient);
  const Tensor v = averaged(p_.beta2, old_state(inputs, 1), square(gradient));
  const auto unbiased = [&](const Tensor& moment, double beta) {
    return p_.bias_correction ? moment / bias_correction(beta, inputs.count) : moment;
  };
  Tensor change = unbiased(m, p_.beta1) / (sqrt(unbiased(v, p_.beta2)) + p_.epsilon);
  if (inputs.weight_decay != 0.0) change = change + in_f32(inputs.parameter) * inputs.weight_decay;

  Tensor weight_norm = sqrt(sum_of_squares(inputs.parameter));
  if (p_.max_norm > 0.0) weight_norm = minimum(weight_norm, constant(p_.max_norm, DType::kF32));
  const Tensor norm = sqrt(sum_of_squares(change)), zero = constant(0.0, DType::kF32);
  const Tensor ratio = where(logical_and(less(zero, weight_norm), less(zero, norm)),
                             weight_norm / (norm + p_.epsilon), constant(1.0, DType::kF32));
  UpdateInputs step = inputs;
  step.weight_decay = 0.0;  // It is in the change.
  return {decayed_step(step, change * ratio), stored(inputs, {m, v})};
}

double Lamb::width_factor(const Parameter& parameter) const {
  if (parameter.widths.empty()) return 1.0;
  fail("mup_base: muP has no rule for Lamb, whose updates are as long as weights; take AdamW");
}

ScheduleFreeAdamW::ScheduleFreeAdamW(const HParams& p)
    : BaseOptimizer(p, {{"v", MomentOrder::kSecond}}), p_(p) {}

std::vector<Slot> ScheduleFreeAdamW::slots(std::string_view path, const Type& parameter) const {
  std::vector<Slot> slots = BaseOptimizer::slots(path, parameter);
  Type number = make_type(DType::kF32, {});  // One for each layer of a stack.
  if (!parameter.axes.empty() && parameter.axes[0].name == kLayersAxis)
    number.axes.push_back(parameter.axes[0]);
  slots.push_back({"z", in_dtype(parameter, DType::kF32)});
  slots.push_back({"largest_rate", number});
  slots.push_back({"weight_sum", number});
  return slots;
}

Updated ScheduleFreeAdamW::update(const UpdateInputs& inputs) const {
  const Tensor zero = constant(0.0, DType::kF32);
  const Tensor gradient = scaled_gradient(inputs);
  const Tensor y = in_f32(inputs.parameter), x = in_f32(inputs.average);
  const Tensor z = where(less(zero, inputs.count), old_state(inputs, 1), y);  // State begins at 0.
  const Tensor v = averaged(p_.beta2, old_state(inputs, 0), square(gradient));
  const Tensor deviation = sqrt(v / bias_correction(p_.beta2, inputs.count));
  Tensor change = gradient / (deviation + p_.epsilon);
  if (inputs.weight_decay != 0.0) change = change + y * inputs.weight_decay;

  const Tensor largest = maximum(old_state(inputs, 2), inputs.learning_rate);
  Tensor weight = pow(largest, constant(p_.rate_power, DType::kF32));
  if (p_.step_power > 0.0) weight = weight * exp(log(inputs.count + 1.0) * p_.step_power);
  const Tensor sum = old_state(inputs, 3) + weight;
  const Tensor share = where(less(zero, sum), weight / sum, zero);
  const Tensor next_z = z - change * inputs.learning_rate;
  const Tensor next_x = (1.0 - share) * x + share * next_z;
  const Tensor next_y = averaged(p_.beta1, next_x, next_z);
  std::vector<Tensor> slots = {v, next_z, largest, sum};
  for (size_t i = 0; i < slots.size(); ++i)
    slots[i] = stored_state(inputs, i, slots[i], p_.state.rounding, kSecondNoise);
  const auto applied = [&](const Tensor& next, const Tensor& old) {
    return where(inputs.apply, as_dtype(next, old.dtype()), old);
  };
  return {applied(next_y, inputs.parameter), slots, applied(next_x, inputs.average)};
}

}  // namespace tessera
