// SPDX-License-Identifier: Apache-2.0
// Two variants of Adam (Kingma and Ba, 2015). AdamW: bias-corrected moments and decoupled weight
// decay (Loshchilov and Hutter, 2019). Adam, as in Pax: bias-corrected decay rates; the RMS of each
// tensor's update is capped, weight decay is added, and the sum is multiplied by the learning rate.
#pragma once

#include <string_view>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/learner/optimizers/base_optimizer.h"

namespace tessera {

class Adam final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Adam;
    static constexpr std::string_view kName = "Adam";
    double learning_rate = 1e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-6;
    double epsilon_root = 0.0;
    double clip_threshold = 1.0;  // On the RMS of each tensor's update; <= 0: no cap.
    double weight_decay = 0.0;
    FIELDS(learning_rate, schedule_tpl, beta1, beta2, epsilon, epsilon_root, clip_threshold,
           weight_decay)
  };
  explicit Adam(const HParams& p);
  std::vector<Slot> slots(const Type& parameter) const override;
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

class AdamW final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = AdamW;
    static constexpr std::string_view kName = "AdamW";
    double learning_rate = 1e-3;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;
    FIELDS(learning_rate, schedule_tpl, beta1, beta2, epsilon, weight_decay)
  };
  explicit AdamW(const HParams& p);
  std::vector<Slot> slots(const Type& parameter) const override;
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

extern template class HolderOf<BaseOptimizer, Adam::HParams>;
extern template class HolderOf<BaseOptimizer, AdamW::HParams>;

}  // namespace tessera
