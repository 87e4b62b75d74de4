// SPDX-License-Identifier: Apache-2.0
// Schedules in steps: constant between boundaries, without and with a linear warm-up.
#pragma once

#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/learner/schedules/base_schedule.h"

namespace tessera {

// values[0] before boundaries[0], values[i] from boundaries[i-1]: one value more than boundaries.
class PiecewiseConstant final : public BaseSchedule {
 public:
  struct HParams {
    using Instance = PiecewiseConstant;
    static constexpr std::string_view kName = "PiecewiseConstant";
    std::vector<int64_t> boundaries;
    std::vector<double> values = {1.0};
    FIELDS(boundaries, values)
  };
  explicit PiecewiseConstant(const HParams& p);
  double value(int64_t step, int64_t num_train_steps) const override;

 private:
  HParams p_;
};

// Rises from 0 to values[0] at boundaries[0], then values[i] from boundaries[i]: as many of each.
class LinearRampupPiecewiseConstant final : public BaseSchedule {
 public:
  struct HParams {
    using Instance = LinearRampupPiecewiseConstant;
    static constexpr std::string_view kName = "LinearRampupPiecewiseConstant";
    std::vector<int64_t> boundaries = {0};
    std::vector<double> values = {1.0};
    FIELDS(boundaries, values)
  };
  explicit LinearRampupPiecewiseConstant(const HParams& p);
  double value(int64_t step, int64_t num_train_steps) const override;

 private:
  HParams p_;
};

extern template class HolderOf<BaseSchedule, PiecewiseConstant::HParams>;
extern template class HolderOf<BaseSchedule, LinearRampupPiecewiseConstant::HParams>;

}  // namespace tessera
