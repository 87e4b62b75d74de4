// SPDX-License-Identifier: Apache-2.0
// The optimizer ScheduleFreeAdamW.
#pragma once

#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/task/learner/base_optimizer.h"

namespace tessera {

// Schedule-free AdamW (Defazio et al., 2024): steps are made at z, gradients are taken at the
// weights y = (1-beta1)·z + beta1·x, and x, an average of z, is what evaluation, decoding and
// export read. It needs no decay of the learning rate, but a warm-up.
class ScheduleFreeAdamW final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = ScheduleFreeAdamW;
    double learning_rate = 2.5e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;
    // A step counts in the average by t^step_power · (the largest rate so far)^rate_power.
    double step_power = 0.0;
    double rate_power = 2.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(epsilon, kNotNegative), About(weight_decay, kNotNegative),
           About(step_power, kNotNegative), About(rate_power, kNotNegative), state)
  };
  explicit ScheduleFreeAdamW(const HParams& p);
  bool averages() const override { return true; }
  std::vector<Slot> slots(const StoredWeight& weight) const override;
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

extern template class HolderOf<BaseOptimizer, ScheduleFreeAdamW::HParams>;

}  // namespace tessera
