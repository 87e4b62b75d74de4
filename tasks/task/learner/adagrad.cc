// SPDX-License-Identifier: Apache-2.0
// The optimizers Adagrad and RmsProp: gradients divided by the root of squared gradients.
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "tasks/task/learner/optimizers.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, Adagrad);
REGISTER_TEMPLATE(BaseOptimizer, RmsProp);

Adagrad::Adagrad(const HParams& p) : BaseOptimizer(p, {{"sum", MomentOrder::kSecond}}), p_(p) {}

Updated Adagrad::update(const UpdateInputs& inputs) const {
  const Tensor gradient = scaled_gradient(inputs);
  const Tensor sum = old_state(inputs, 0) + square(gradient);
  const Tensor root = sqrt(sum + p_.initial_accumulator);  // State begins with zeros.
  return {decayed_step(inputs, gradient / (root + p_.epsilon)), stored(inputs, {sum})};
}

namespace {

std::vector<Moment> moments_of(const RmsProp::HParams& p) {
  std::vector<Moment> moments = {{"v", MomentOrder::kSecond}};
  if (p.centered) moments.push_back({"m", MomentOrder::kFirst});
  if (p.momentum > 0.0) moments.push_back({"momentum", MomentOrder::kFirst});
  return moments;
}

}  // namespace

RmsProp::RmsProp(const HParams& p) : BaseOptimizer(p, moments_of(p)), p_(p) {}

Updated RmsProp::update(const UpdateInputs& inputs) const {
  const Tensor gradient = scaled_gradient(inputs);
  std::vector<Tensor> next = {averaged(p_.decay, old_state(inputs, 0), square(gradient))};
  Tensor variance = next[0];
  if (p_.centered) {
    next.push_back(averaged(p_.decay, old_state(inputs, 1), gradient));
    // Rounding can make it negative.
    variance = maximum(variance - square(next[1]), constant(0.0, DType::kF32));
  }
  Tensor change = gradient / (sqrt(variance) + p_.epsilon);
  if (p_.momentum > 0.0) {
    change = old_state(inputs, next.size()) * p_.momentum + change;
    next.push_back(change);
  }
  return {decayed_step(inputs, change), stored(inputs, next)};
}

}  // namespace tessera
