// SPDX-License-Identifier: Apache-2.0
// The optimizer Sophia: momentum divided by an estimate of the curvature, and clipped.
#pragma once

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/task/learner/base_optimizer.h"

namespace tessera {

// Sophia-G (Liu et al., 2023, arXiv 2305.14342, algorithm 3). Every `hessian_interval` steps, the
// first included, the diagonal of the Hessian is estimated by Gauss-Newton-Bartlett: the squared
// gradient of the mean loss of labels drawn from the model's predictions, times their number. The
// step is sign(m)·min(1, |m| / (rho·h)); rho is the γ of the paper.
class SophiaG final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = SophiaG;
    double learning_rate = 1e-4;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.965;
    double beta2 = 0.99;
    double rho = 0.04;
    double epsilon = 1e-15;  // Added to rho·h.
    int64_t hessian_interval = 10;
    double weight_decay = 0.1;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(rho, kPositive), About(epsilon, kPositive),
           About(hessian_interval, {.min = 1}), About(weight_decay, kNotNegative), state)
  };
  explicit SophiaG(const HParams& p);
  int64_t interval() const override { return p_.hessian_interval; }
  bool reads_drawn_gradient() const override { return true; }
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

extern template class HolderOf<BaseOptimizer, SophiaG::HParams>;

}  // namespace tessera
