// SPDX-License-Identifier: Apache-2.0
// The optimizers Sgd, with momentum, and Lion, which steps by the sign of an average.
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

extern template class HolderOf<BaseOptimizer, Sgd::HParams>;
extern template class HolderOf<BaseOptimizer, Lion::HParams>;

}  // namespace tessera
