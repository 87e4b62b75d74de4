// SPDX-License-Identifier: Apache-2.0
#include "tasks/learner/optimizers/adam.h"

#include <cmath>

#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/optimizer.h"
#include "tasks/learner/optimizers/update_ops.h"

namespace tessera {

template class HolderOf<BaseOptimizer, Adam::HParams>;
template class HolderOf<BaseOptimizer, AdamW::HParams>;

namespace {

const TemplateRegistrar<BaseOptimizer, Adam> kRegisterAdam;
const TemplateRegistrar<BaseOptimizer, AdamW> kRegisterAdamW;

template <typename HParams>
void check_adam(const HParams& p) {
  check_fraction(p.kName, "beta1", p.beta1);
  check_fraction(p.kName, "beta2", p.beta2);
  check_not_negative(p.kName, "epsilon", p.epsilon);
}

// Both moments are f32, whatever the parameter's dtype.
std::vector<Slot> moments(Type type) {
  type.dtype = DType::kF32;
  return {{"m", type}, {"v", type}};
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

Adam::Adam(const HParams& p) : BaseOptimizer(p), p_(p) {
  check_adam(p);
  check_not_negative(p.kName, "epsilon_root", p.epsilon_root);
  check_finite(p.kName, "clip_threshold", p.clip_threshold);
}

std::vector<Slot> Adam::slots(const Type& parameter) const { return moments(parameter); }

Updated Adam::update(const UpdateInputs& inputs) const {
  if (p_.clip_threshold <= 0.0 && inputs.parameter.dtype() == DType::kF32)
    return fused(inputs, {.beta1 = p_.beta1,
                          .beta2 = p_.beta2,
                          .epsilon = p_.epsilon,
                          .epsilon_root = p_.epsilon_root,
                          .weight_decay = inputs.weight_decay,
                          .bias_corrected_decay = true});
  // The cap needs the RMS of the whole tensor's update, which the fused op does not compute.
  const Tensor gradient = scaled_gradient(inputs);
  const Tensor beta1 = bias_corrected(p_.beta1, inputs.count);
  const Tensor beta2 = bias_corrected(p_.beta2, inputs.count);
  const Tensor m = beta1 * inputs.slots[0] + (1.0 - beta1) * gradient;
  const Tensor v = beta2 * inputs.slots[1] + (1.0 - beta2) * square(gradient);
  Tensor change = m / (sqrt(v + p_.epsilon_root) + p_.epsilon);
  if (p_.clip_threshold > 0.0) change = cap_rms(change, p_.clip_threshold);
  return {decayed_step(inputs, change),
          {applied(inputs, m, inputs.slots[0]), applied(inputs, v, inputs.slots[1])}};
}

AdamW::AdamW(const HParams& p) : BaseOptimizer(p), p_(p) { check_adam(p); }

std::vector<Slot> AdamW::slots(const Type& parameter) const { return moments(parameter); }

Updated AdamW::update(const UpdateInputs& inputs) const {
  return fused(inputs, {.beta1 = p_.beta1,
                        .beta2 = p_.beta2,
                        .epsilon = p_.epsilon,
                        .weight_decay = inputs.weight_decay});
}

}  // namespace tessera
