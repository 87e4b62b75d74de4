// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma and Ba, 2015) in two readings. `AdamW` is the usual one: corrected moments,
// decoupled decay (Loshchilov and Hutter, 2019). `Adam` is Pax's: bias-corrected decays, the root
// mean square of each tensor's update capped, then decay added to the update, all times the
// learning rate.
#pragma once

#include <string_view>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/learner/optimizers/base_optimizer.h"
#include "tasks/learner/schedules/constant.h"

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
  double learning_rate(int64_t step, int64_t num_train_steps) const override;
  double weight_decay() const override { return p_.weight_decay; }
  std::vector<Slot> slots(const Type& parameter) const override;
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
  std::unique_ptr<BaseSchedule> schedule_;
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
  double learning_rate(int64_t step, int64_t num_train_steps) const override;
  double weight_decay() const override { return p_.weight_decay; }
  std::vector<Slot> slots(const Type& parameter) const override;
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
  std::unique_ptr<BaseSchedule> schedule_;
};

extern template class HolderOf<BaseOptimizer, Adam::HParams>;
extern template class HolderOf<BaseOptimizer, AdamW::HParams>;

}  // namespace tessera
