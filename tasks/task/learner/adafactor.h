// SPDX-License-Identifier: Apache-2.0
// The optimizer Adafactor.
#pragma once

#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/task/learner/base_optimizer.h"

namespace tessera {

// Adafactor (Shazeer and Stern, 2018): stores the second moment of a large matrix as its row and
// column means, so that state is a few per cent of Adam's. Optional momentum averages the capped
// update before the learning rate.
class Adafactor final : public BaseOptimizer {
 public:
  struct HParams {
    using Instance = Adafactor;
    double learning_rate = 1e-2;
    Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
    double decay_exponent = 0.8;  // The second moment's decay is 1 - t^-decay_exponent,
    double decay_adam = 0.0;      // or, if > 0, this one, bias-corrected as in Adam (Pax).
    double beta1 = 0.0;           // 0: no momentum.
    double epsilon1 = 1e-30;      // Added to the squared gradient.
    double epsilon2 = 1e-3;       // Lower bound of the parameter scale.
    double clip_threshold = 1.0;  // On the RMS of each tensor's update; <= 0: no cap.
    int64_t min_dim_size_to_factor = 128;
    bool multiply_by_parameter_scale = true;
    double weight_decay = 0.0;
    StatePolicy state;
    FIELDS(About(learning_rate, kNotNegative), schedule_tpl, About(decay_exponent, kPositive),
           About(decay_adam, kRate), About(beta1, kRate), About(epsilon1, kNotNegative),
           About(epsilon2, kNotNegative), clip_threshold,
           About(min_dim_size_to_factor, kNotNegative), multiply_by_parameter_scale,
           About(weight_decay, kNotNegative), state)
  };
  explicit Adafactor(const HParams& p);
  std::vector<Slot> slots(const StoredWeight& weight) const override;
  Updated update(const UpdateInputs& inputs) const override;
  double width_factor(const Parameter& parameter) const override;

 private:
  HParams p_;
};

extern template class HolderOf<BaseOptimizer, Adafactor::HParams>;

}  // namespace tessera
