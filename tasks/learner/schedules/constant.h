// SPDX-License-Identifier: Apache-2.0
// The schedule that stays where it is.
#pragma once

#include <string_view>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/learner/schedules/base_schedule.h"

namespace tessera {

class ConstantSchedule final : public BaseSchedule {
 public:
  struct HParams {
    using Instance = ConstantSchedule;
    static constexpr std::string_view kName = "ConstantSchedule";
    double value = 1.0;
    FIELDS(value)
  };
  explicit ConstantSchedule(const HParams& p);
  double value(int64_t step, int64_t num_train_steps) const override;

 private:
  HParams p_;
};

extern template class HolderOf<BaseSchedule, ConstantSchedule::HParams>;

}  // namespace tessera
