// SPDX-License-Identifier: Apache-2.0
// The optimizers Sgd, with momentum; Lion, which steps by the sign of an average; Adagrad and
// RmsProp, which divide by the root of squared gradients.
#pragma once

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/task/learner/base_optimizer.h"

namespace tessera {

// Stochastic gradient descent with optional momentum (Polyak, 1964), also Nesterov's.
class Sgd final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Sgd;
    double learning_rate = 1e-2;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double momentum = 0.0;  // 0: no momentum.
    bool nesterov = false;
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(momentum, kRate), nesterov,
           About(weight_decay, kNotNegative), state)
  };
  explicit Sgd(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;
  double width_factor(const Parameter& parameter) const override;

 private:
  HParams p_;
};

// Lion (Chen et al., 2023): steps by the sign of an average of gradients, so one moment is stored.
// Suits a learning rate 3 to 10 times smaller than AdamW's, and a weight decay as much larger.
class Lion final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Lion;
    double learning_rate = 1e-4;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;   // For the average whose sign is the step,
    double beta2 = 0.99;  // and for the one that is stored.
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(weight_decay, kNotNegative), state)
  };
  explicit Lion(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

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

extern template class HolderOf<BaseOptimizer, Sgd::HParams>;
extern template class HolderOf<BaseOptimizer, Lion::HParams>;
extern template class HolderOf<BaseOptimizer, Adagrad::HParams>;
extern template class HolderOf<BaseOptimizer, RmsProp::HParams>;

}  // namespace tessera
