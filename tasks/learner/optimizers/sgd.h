// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with optional momentum (Polyak, 1964), also Nesterov's. Weight decay
// is decoupled, as in every optimizer here: it does not enter the momentum.
#pragma once

#include <string_view>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/learner/optimizers/base_optimizer.h"

namespace tessera {

class Sgd final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Sgd;
    static constexpr std::string_view kName = "Sgd";
    double learning_rate = 1e-2;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double momentum = 0.0;  // 0: no momentum.
    bool nesterov = false;
    double weight_decay = 0.0;
    FIELDS(learning_rate, schedule_tpl, momentum, nesterov, weight_decay)
  };
  explicit Sgd(const HParams& p);
  std::vector<Slot> slots(const Type& parameter) const override;
  Updated update(const UpdateInputs& inputs) const override;

 private:
  HParams p_;
};

extern template class HolderOf<BaseOptimizer, Sgd::HParams>;

}  // namespace tessera
