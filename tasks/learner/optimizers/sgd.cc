// SPDX-License-Identifier: Apache-2.0
#include "tasks/learner/optimizers/sgd.h"

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "tasks/learner/optimizers/update_ops.h"

namespace tessera {

template class HolderOf<BaseOptimizer, Sgd::HParams>;

namespace {

const TemplateRegistrar<BaseOptimizer, Sgd> kRegisterSgd;

}  // namespace

Sgd::Sgd(const HParams& p) : BaseOptimizer(p), p_(p) {
  check_fraction(p.kName, "momentum", p.momentum);
  if (p.nesterov && p.momentum == 0.0)
    fail("Sgd: nesterov needs momentum, which is 0; set momentum");
}

std::vector<Slot> Sgd::slots(const Type& parameter) const {
  if (p_.momentum == 0.0) return {};
  Type type = parameter;
  type.dtype = DType::kF32;
  return {{"momentum", type}};
}

Updated Sgd::update(const UpdateInputs& inputs) const {
  const Tensor gradient = scaled_gradient(inputs);
  if (p_.momentum == 0.0) return {decayed_step(inputs, gradient), {}};
  const Tensor trace = inputs.slots[0] * p_.momentum + gradient;
  const Tensor change = p_.nesterov ? trace * p_.momentum + gradient : trace;
  return {decayed_step(inputs, change), {applied(inputs, trace, inputs.slots[0])}};
}

}  // namespace tessera
