// SPDX-License-Identifier: Apache-2.0
#include "tests/composition/recorded_gradient.h"

#include "core/ops/reshard.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, RecordedGradient);

RecordedGradient::RecordedGradient(const HParams& p)
    : BaseOptimizer(p), optimizer_(p.optimizer_tpl.instantiate()) {}

std::vector<Slot> RecordedGradient::slots(const StoredWeight& weight) const {
  std::vector<Slot> slots = optimizer_->slots(weight);
  Type type = weight.type;
  type.dtype = DType::kF32;
  slots.push_back({"gradient", type});
  return slots;
}

Updated RecordedGradient::update(const UpdateInputs& inputs) const {
  UpdateInputs inner = inputs;
  inner.slots.pop_back();
  Updated updated = optimizer_->update(inner);
  updated.slots.push_back(cast(inputs.gradient, DType::kF32));
  return updated;
}

}  // namespace tessera
