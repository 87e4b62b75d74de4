// SPDX-License-Identifier: Apache-2.0
// An optimizer whose state has the gradient of the last step, so that compositions compare it by
// element: state of some optimizers has only its means or signs.
#pragma once

#include "tasks/task/learner/optimizers.h"

namespace tessera {

// Updates as `optimizer_tpl` does. The slot "gradient" is the gradient without the scale of
// clipping, also of steps that are not applied.
class RecordedGradient final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = RecordedGradient;
    static constexpr std::string_view kName = "RecordedGradient";
    Template<BaseOptimizer> optimizer_tpl;
    double learning_rate = 0.0;  // These are the optimizer's.
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double weight_decay = 0.0;
    FIELDS(optimizer_tpl, learning_rate, schedule_tpl, weight_decay)
  };
  explicit RecordedGradient(const HParams& p);
  std::vector<Slot> slots(const StoredWeight& weight) const override;
  Updated update(const UpdateInputs& inputs) const override;

 private:
  std::unique_ptr<BaseOptimizer> optimizer_;
};

extern template class HolderOf<BaseOptimizer, RecordedGradient::HParams>;

// The optimizer, which also records gradients.
template <typename HParams>
RecordedGradient::HParams with_recorded_gradient(const HParams& p) {
  return {.optimizer_tpl = p,
          .learning_rate = p.learning_rate,
          .schedule_tpl = p.schedule_tpl,
          .weight_decay = p.weight_decay};
}

}  // namespace tessera
