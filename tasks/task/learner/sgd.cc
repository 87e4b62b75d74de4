// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/sgd.h"

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, Sgd);
REGISTER_TEMPLATE(BaseOptimizer, Lion);
REGISTER_TEMPLATE(BaseOptimizer, Adagrad);
REGISTER_TEMPLATE(BaseOptimizer, RmsProp);

Sgd::Sgd(const HParams& p)
    : BaseOptimizer(p,
                    p.momentum > 0.0 ? std::vector<Moment>{{"momentum"}} : std::vector<Moment>{}),
      p_(p) {
  if (p.nesterov && p.momentum == 0.0)
    fail("Sgd: nesterov needs momentum, which is 0; set momentum");
}

Updated Sgd::update(const UpdateInputs& inputs) const {
  const Tensor gradient = scaled_gradient(inputs);
  if (p_.momentum == 0.0) return {decayed_step(inputs, gradient), {}};
  const Tensor trace = old_state(inputs, 0) * p_.momentum + gradient;
  const Tensor change = p_.nesterov ? trace * p_.momentum + gradient : trace;
  return {decayed_step(inputs, change), stored(inputs, {trace})};
}

double Sgd::width_factor(const Parameter& parameter) const {
  const WidthRatios widths = width_ratios(parameter);
  return widths.out / widths.in;
}

Lion::Lion(const HParams& p) : BaseOptimizer(p, {{"m", MomentOrder::kFirst}}), p_(p) {}

Updated Lion::update(const UpdateInputs& inputs) const {
  const Tensor gradient = scaled_gradient(inputs), m = old_state(inputs, 0);
  const Tensor change = sign(averaged(p_.beta1, m, gradient));
  const Tensor next = averaged(p_.beta2, m, gradient);
  return {decayed_step(inputs, change), stored(inputs, {next})};
}

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
