// SPDX-License-Identifier: Apache-2.0
// The optimizer Sophia: momentum divided by an estimate of the curvature, and clipped.
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "tasks/task/learner/optimizers.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, SophiaG);

SophiaG::SophiaG(const HParams& p)
    : BaseOptimizer(p, {{"m", MomentOrder::kFirst}, {"h", MomentOrder::kSecond}}), p_(p) {}

Updated SophiaG::update(const UpdateInputs& inputs) const {
  const Tensor momentum = averaged(p_.beta1, old_state(inputs, 0), scaled_gradient(inputs));
  Tensor curvature = old_state(inputs, 1);
  if (inputs.drawn_gradient.valid())
    curvature =
        averaged(p_.beta2, curvature, square(in_f32(inputs.drawn_gradient)) * inputs.drawn_labels);
  const Tensor one = constant(1.0, DType::kF32);
  const Tensor ratio = minimum(abs(momentum) / (curvature * p_.rho + p_.epsilon), one);
  return {decayed_step(inputs, sign(momentum) * ratio), stored(inputs, {momentum, curvature})};
}

}  // namespace tessera
