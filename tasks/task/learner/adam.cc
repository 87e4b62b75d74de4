// SPDX-License-Identifier: Apache-2.0
// The optimizers Adam, AdamW (with AMSGrad) and Lamb: averages of gradients and of their squares.
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/optimizer.h"
#include "tasks/task/learner/optimizers.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, Adam);
REGISTER_TEMPLATE(BaseOptimizer, AdamW);
REGISTER_TEMPLATE(BaseOptimizer, Lamb);

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

}  // namespace tessera
