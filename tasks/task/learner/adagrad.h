// SPDX-License-Identifier: Apache-2.0
// The optimizers Adagrad and RmsProp: gradients divided by the root of squared gradients.
#pragma once

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/task/learner/base_optimizer.h"

namespace tessera {

// Adagrad (Duchi et al., 2011): divides by the root of the sum of all squared gradients.
class Adagrad final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Adagrad;
    double learning_rate = 1e-2;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double initial_accumulator = 0.0;  // What the sum begins with.
    double epsilon = 1e-10;
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl,
           About(initial_accumulator, kNotNegative), About(epsilon, kNotNegative),
           About(weight_decay, kNotNegative), state)
  };
  explicit Adagrad(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

// RMSProp (Tieleman and Hinton, 2012), as PyTorch's: divides by the root of an average of squared
// gradients; `centered`, by their deviation (Graves, 2013). Momentum sums the steps.
class RmsProp final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = RmsProp;
    double learning_rate = 1e-2;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double decay = 0.99;
    double epsilon = 1e-8;
    double momentum = 0.0;  // 0: no momentum.
    bool centered = false;
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(decay, kRate),
           About(epsilon, kNotNegative), About(momentum, kRate), centered,
           About(weight_decay, kNotNegative), state)
  };
  explicit RmsProp(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

extern template class HolderOf<BaseOptimizer, Adagrad::HParams>;
extern template class HolderOf<BaseOptimizer, RmsProp::HParams>;

}  // namespace tessera
