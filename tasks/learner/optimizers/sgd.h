// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with optional momentum (Polyak) and Nesterov's look-ahead. Decay is
// decoupled, as in every optimizer here: it never enters the momentum.
#pragma once

#include <string_view>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/learner/optimizers/base_optimizer.h"
#include "tasks/learner/schedules/constant.h"

namespace tessera {

class Sgd final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Sgd;
    static constexpr std::string_view kName = "Sgd";
    double learning_rate = 1e-2;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double momentum = 0.0;  // 0: no trace is kept.
    bool nesterov = false;
    double weight_decay = 0.0;
    FIELDS(learning_rate, schedule_tpl, momentum, nesterov, weight_decay)
  };
  explicit Sgd(const HParams& p);
  double learning_rate(int64_t step, int64_t num_train_steps) const override;
  double weight_decay() const override { return p_.weight_decay; }
  std::vector<Slot> slots(const Type& parameter) const override;
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
  std::unique_ptr<BaseSchedule> schedule_;
};

extern template class HolderOf<BaseOptimizer, Sgd::HParams>;

}  // namespace tessera
