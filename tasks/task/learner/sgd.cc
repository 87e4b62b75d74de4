// SPDX-License-Identifier: Apache-2.0
// The optimizers Sgd, with momentum, and Lion, which steps by the sign of an average.
#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "tasks/task/learner/optimizers.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, Sgd);
REGISTER_TEMPLATE(BaseOptimizer, Lion);

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

}  // namespace tessera
