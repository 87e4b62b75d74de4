// SPDX-License-Identifier: Apache-2.0
// The optimizers Adam, AdamW (with AMSGrad), Lamb and ScheduleFreeAdamW: averages of gradients and
// of their squares.
#pragma once

#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/task/learner/base_optimizer.h"

namespace tessera {

// Adam (Kingma and Ba, 2015) as in Pax: bias-corrected decay rates; the RMS of each tensor's update
// is capped, weight decay is added, and the sum is multiplied by the learning rate.
class Adam final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Adam;
    double learning_rate = 1e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-6;
    double epsilon_root = 0.0;
    double clip_threshold = 1.0;  // On the RMS of each tensor's update; <= 0: no cap.
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(epsilon, kNotNegative), About(epsilon_root, kNotNegative),
           clip_threshold, About(weight_decay, kNotNegative), state)
  };
  explicit Adam(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

// Adam with bias-corrected moments and decoupled weight decay (Loshchilov and Hutter, 2019); with
// `amsgrad` it divides by the largest second moment so far (Reddi et al., 2018; as PyTorch's).
class AdamW final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = AdamW;
    double learning_rate = 1e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;
    bool amsgrad = false;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(epsilon, kNotNegative), About(weight_decay, kNotNegative),
           amsgrad, state)
  };
  explicit AdamW(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

// LAMB (You et al., 2020): Adam's step with weight decay, as long for each tensor as its norm.
class Lamb final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Lamb;
    double learning_rate = 1e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-6;
    bool bias_correction = true;
    double max_norm = 10.0;  // Larger norms of weights count as this one; 0: no limit.
    double weight_decay = 0.01;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(beta1, kRate),
           About(beta2, kRate), About(epsilon, kNotNegative), bias_correction,
           About(max_norm, kNotNegative), About(weight_decay, kNotNegative), state)
  };
  explicit Lamb(const HParams& p);
  Updated update(const UpdateInputs& inputs) const override;
  double width_factor(const Parameter& parameter) const override;

 private:
  HParams p_;
};

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
  std::vector<Slot> slots(std::string_view path, const Type& parameter) const override;
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

extern template class HolderOf<BaseOptimizer, Adam::HParams>;
extern template class HolderOf<BaseOptimizer, AdamW::HParams>;
extern template class HolderOf<BaseOptimizer, Lamb::HParams>;
extern template class HolderOf<BaseOptimizer, ScheduleFreeAdamW::HParams>;

}  // namespace tessera
