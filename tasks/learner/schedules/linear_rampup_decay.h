// SPDX-License-Identifier: Apache-2.0
// Linear warm-up, a plateau, then a decay: Pax's LinearRampup…Decay family. All rise from 0 at step
// 0 to `max` at `warmup_steps`, hold until `decay_start`, and reach `max * min_ratio` at
// `decay_end`, where they stay.
#pragma once

#include <string_view>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "tasks/learner/schedules/base_schedule.h"

namespace tessera {

class LinearRampupCosineDecay final : public BaseSchedule {
 public:
  struct HParams {
    using Instance = LinearRampupCosineDecay;
    static constexpr std::string_view kName = "LinearRampupCosineDecay";
    int64_t warmup_steps = 0;
    int64_t decay_start = -1;  // -1: at the end of the warm-up.
    int64_t decay_end = -1;    // -1: with the run.
    double min_ratio = 0.0;
    double max = 1.0;
    FIELDS(warmup_steps, decay_start, decay_end, min_ratio, max)
  };
  explicit LinearRampupCosineDecay(const HParams& p);
  double value(int64_t step, int64_t num_train_steps) const override;

 private:
  HParams p_;
};

class LinearRampupExponentialDecay final : public BaseSchedule {
 public:
  struct HParams {
    using Instance = LinearRampupExponentialDecay;
    static constexpr std::string_view kName = "LinearRampupExponentialDecay";
    int64_t warmup_steps = 0;
    int64_t decay_start = -1;
    int64_t decay_end = -1;
    double min_ratio = 0.01;
    double max = 1.0;
    FIELDS(warmup_steps, decay_start, decay_end, min_ratio, max)
  };
  explicit LinearRampupExponentialDecay(const HParams& p);
  double value(int64_t step, int64_t num_train_steps) const override;

 private:
  HParams p_;
};

class LinearRampupLinearDecay final : public BaseSchedule {
 public:
  struct HParams {
    using Instance = LinearRampupLinearDecay;
    static constexpr std::string_view kName = "LinearRampupLinearDecay";
    int64_t warmup_steps = 0;
    int64_t decay_start = -1;
    int64_t decay_end = -1;
    double min_ratio = 0.0;
    double max = 1.0;
    FIELDS(warmup_steps, decay_start, decay_end, min_ratio, max)
  };
  explicit LinearRampupLinearDecay(const HParams& p);
  double value(int64_t step, int64_t num_train_steps) const override;

 private:
  HParams p_;
};

// Warm-up, then max·√(warmup_steps / step); there is no end.
class LinearRampupSqrtDecay final : public BaseSchedule {
 public:
  struct HParams {
    using Instance = LinearRampupSqrtDecay;
    static constexpr std::string_view kName = "LinearRampupSqrtDecay";
    int64_t warmup_steps = 1;
    double max = 1.0;
    FIELDS(warmup_steps, max)
  };
  explicit LinearRampupSqrtDecay(const HParams& p);
  double value(int64_t step, int64_t num_train_steps) const override;

 private:
  HParams p_;
};

// Warm-up, stable, decay (Hu et al., 2024, MiniCPM): the plateau lasts until `decay_steps` before
// the end, where a linear decay begins.
class WarmupStableDecay final : public BaseSchedule {
 public:
  struct HParams {
    using Instance = WarmupStableDecay;
    static constexpr std::string_view kName = "WarmupStableDecay";
    int64_t warmup_steps = 0;
    int64_t decay_steps = 0;
    int64_t decay_end = -1;
    double min_ratio = 0.0;
    double max = 1.0;
    FIELDS(warmup_steps, decay_steps, decay_end, min_ratio, max)
  };
  explicit WarmupStableDecay(const HParams& p);
  double value(int64_t step, int64_t num_train_steps) const override;

 private:
  HParams p_;
};

extern template class HolderOf<BaseSchedule, LinearRampupCosineDecay::HParams>;
extern template class HolderOf<BaseSchedule, LinearRampupExponentialDecay::HParams>;
extern template class HolderOf<BaseSchedule, LinearRampupLinearDecay::HParams>;
extern template class HolderOf<BaseSchedule, LinearRampupSqrtDecay::HParams>;
extern template class HolderOf<BaseSchedule, WarmupStableDecay::HParams>;

}  // namespace tessera
