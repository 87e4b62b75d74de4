// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: a factor on the learning rate as a pure function of the step, computed
// on the host before each step and fed to the program as a scalar.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"

namespace tessera {

class BaseSchedule {
 public:
  virtual ~BaseSchedule() = default;
  // The factor at `step` (0, 1, …) of a run of `num_train_steps`.
  virtual double value(int64_t step, int64_t num_train_steps) const = 0;
  // Steps until the factor is at its peak; 0 without a warm-up.
  virtual int64_t warmup_steps() const { return 0; }
  // The step at which its decay ends, if its configuration says so; else -1.
  virtual int64_t decay_end() const { return -1; }
};

// The schedule with this shape. A shape is the schedule's HParams with the function `factor`, and
// `check` if there are values that do not fit together (Error).
template <typename Shape>
class Schedule final : public BaseSchedule {
 public:
  using HParams = Shape;
  explicit Schedule(const Shape& shape) : shape_(shape) {
    if constexpr (requires { shape.check(); }) shape.check();
  }
  double value(int64_t step, int64_t num_train_steps) const override {
    return shape_.factor(step, num_train_steps);
  }
  int64_t warmup_steps() const override {
    if constexpr (requires { shape_.warmup_steps; }) return shape_.warmup_steps;
    return 0;
  }
  int64_t decay_end() const override {
    if constexpr (requires { shape_.decay_end; }) return shape_.decay_end;
    return -1;
  }

 private:
  Shape shape_;
};

struct ConstantShape {
  using Instance = Schedule<ConstantShape>;
  static constexpr std::string_view kName = "ConstantSchedule";
  double value = 1.0;
  FIELDS(About(value, kNotNegative))

  double factor(int64_t, int64_t) const { return value; }
};

// How a factor falls. kOneMinusSqrt (1-√ of the share of the decay that is over): Hägele et al.,
// 2024.
enum class Decay { kCosine, kExponential, kLinear, kOneMinusSqrt };

// Pax's LinearRampup…Decay: rises linearly from max·warmup_start at step 0 to `max` at
// `warmup_steps`, stays there until `decay_start`, reaches max·min_ratio at `decay_end`, and stays
// there.
template <Decay decay>
struct LinearRampupDecayShape {
  using Instance = Schedule<LinearRampupDecayShape>;
  static constexpr std::string_view kName = decay == Decay::kCosine ? "LinearRampupCosineDecay"
                                            : decay == Decay::kExponential
                                                ? "LinearRampupExponentialDecay"
                                                : "LinearRampupLinearDecay";
  int64_t warmup_steps = 0;
  double warmup_start = 0.0;
  int64_t decay_start = -1;  // -1: at the end of the warm-up.
  int64_t decay_end = -1;    // -1: at the end of the run.
  double min_ratio = decay == Decay::kExponential ? 0.01 : 0.0;
  double max = 1.0;
  FIELDS(About(warmup_steps, kNotNegative), About(warmup_start, kShare),
         About(decay_start, {.min = 0, .also = -1}), About(decay_end, {.min = 0, .also = -1}),
         About(min_ratio, kShare), About(max, kNotNegative))

  void check() const;
  double factor(int64_t step, int64_t num_train_steps) const;
};

// Linear warm-up, then max·√(warmup_steps / step), without end.
struct LinearRampupSqrtDecayShape {
  using Instance = Schedule<LinearRampupSqrtDecayShape>;
  static constexpr std::string_view kName = "LinearRampupSqrtDecay";
  int64_t warmup_steps = 1;
  double max = 1.0;
  FIELDS(About(warmup_steps, "the time scale of the decay, too", {.min = 1}),
         About(max, kNotNegative))

  double factor(int64_t step, int64_t num_train_steps) const;
};

// As LinearRampupLinearDecay, with max·(1 - progress)^power in place of a straight line.
struct LinearRampupPolynomialDecayShape {
  using Instance = Schedule<LinearRampupPolynomialDecayShape>;
  static constexpr std::string_view kName = "LinearRampupPolynomialDecay";
  int64_t warmup_steps = 0;
  double warmup_start = 0.0;
  int64_t decay_end = -1;  // -1: at the end of the run.
  double power = 2.0;
  double min_ratio = 0.0;
  double max = 1.0;
  FIELDS(About(warmup_steps, kNotNegative), About(warmup_start, kShare),
         About(decay_end, {.min = 0, .also = -1}), About(power, kPositive),
         About(min_ratio, kShare), About(max, kNotNegative))

  void check() const;
  double factor(int64_t step, int64_t num_train_steps) const;
};

// Linear warm-up, `max` until `decay_start`, then max·(decay_start / step)^exponent, without end
// (Shen et al., 2024, without its scaling by the batch).
struct LinearRampupPowerDecayShape {
  using Instance = Schedule<LinearRampupPowerDecayShape>;
  static constexpr std::string_view kName = "LinearRampupPowerDecay";
  int64_t warmup_steps = 1;
  double warmup_start = 0.0;
  int64_t decay_start = -1;  // -1: at the end of the warm-up.
  double exponent = 0.5;
  double max = 1.0;
  FIELDS(About(warmup_steps, {.min = 1}), About(warmup_start, kShare),
         About(decay_start, {.min = 1, .also = -1}), About(exponent, kPositive),
         About(max, kNotNegative))

  void check() const;
  double factor(int64_t step, int64_t num_train_steps) const;
};

// Linear warm-up, then cosine decays from `max` to max·min_ratio, one after another (Loshchilov and
// Hutter, 2017, SGDR). Each is `growth` times as long as the one before, its peak `peak_ratio`.
struct CosineCyclesShape {
  using Instance = Schedule<CosineCyclesShape>;
  static constexpr std::string_view kName = "CosineCycles";
  int64_t warmup_steps = 0;
  double warmup_start = 0.0;
  int64_t cycle_steps = 1000;  // The first one's.
  double growth = 1.0;
  double peak_ratio = 1.0;
  double min_ratio = 0.0;
  double max = 1.0;
  FIELDS(About(warmup_steps, kNotNegative), About(warmup_start, kShare),
         About(cycle_steps, {.min = 1}), About(growth, {.min = 1, .max = 1000}),
         About(peak_ratio, kShare), About(min_ratio, kShare), About(max, kNotNegative))

  double factor(int64_t step, int64_t num_train_steps) const;
};

// Warm-up, stable, decay (Hu et al., 2024, MiniCPM): as LinearRampupLinearDecay, with a decay over
// the last `decay_steps` before `decay_end`.
struct WarmupStableDecayShape {
  using Instance = Schedule<WarmupStableDecayShape>;
  static constexpr std::string_view kName = "WarmupStableDecay";
  int64_t warmup_steps = 0;
  double warmup_start = 0.0;
  int64_t decay_steps = 0;
  int64_t decay_end = -1;  // -1: at the end of the run.
  Decay decay = Decay::kLinear;
  double min_ratio = 0.0;
  double max = 1.0;
  FIELDS(About(warmup_steps, kNotNegative), About(warmup_start, kShare),
         About(decay_steps, kNotNegative), About(decay_end, {.min = 0, .also = -1}), decay,
         About(min_ratio, kShare), About(max, kNotNegative))

  void check() const;
  double factor(int64_t step, int64_t num_train_steps) const;
};

// values[0] before boundaries[0], values[i] from boundaries[i-1]: one value more than boundaries.
struct PiecewiseConstantShape {
  using Instance = Schedule<PiecewiseConstantShape>;
  static constexpr std::string_view kName = "PiecewiseConstant";
  std::vector<int64_t> boundaries;
  std::vector<double> values = {1.0};
  FIELDS(About(boundaries, kNotNegative), About(values, kNotNegative))

  void check() const;
  double factor(int64_t step, int64_t num_train_steps) const;
};

// Rises linearly from 0 to values[0] at boundaries[0], then values[i] from boundaries[i]: as many
// values as boundaries.
struct LinearRampupPiecewiseConstantShape {
  using Instance = Schedule<LinearRampupPiecewiseConstantShape>;
  static constexpr std::string_view kName = "LinearRampupPiecewiseConstant";
  std::vector<int64_t> boundaries = {0};
  std::vector<double> values = {1.0};
  FIELDS(About(boundaries, kNotNegative), About(values, kNotNegative))

  void check() const;
  double factor(int64_t step, int64_t num_train_steps) const;
};

// One schedule after another: schedules_tpl[i] from boundaries[i-1], one more than boundaries. Each
// counts steps from its own first one, and its run ends at the next boundary. (Pax, optax:
// join_schedules.)
class PiecewiseSchedule final : public BaseSchedule {
 public:
  struct HParams {
    using Instance = PiecewiseSchedule;
    std::vector<int64_t> boundaries;
    std::vector<Template<BaseSchedule>> schedules_tpl = {ConstantShape{}};
    FIELDS(About(boundaries, {.min = 1}), schedules_tpl)
  };
  explicit PiecewiseSchedule(const HParams& p);
  double value(int64_t step, int64_t num_train_steps) const override;
  int64_t warmup_steps() const override { return pieces_.front()->warmup_steps(); }
  int64_t decay_end() const override;

 private:
  std::vector<int64_t> starts_;  // Where each piece begins.
  std::vector<std::unique_ptr<BaseSchedule>> pieces_;
};

using ConstantSchedule = Schedule<ConstantShape>;
using LinearRampupCosineDecay = Schedule<LinearRampupDecayShape<Decay::kCosine>>;
using LinearRampupExponentialDecay = Schedule<LinearRampupDecayShape<Decay::kExponential>>;
using LinearRampupLinearDecay = Schedule<LinearRampupDecayShape<Decay::kLinear>>;
using LinearRampupSqrtDecay = Schedule<LinearRampupSqrtDecayShape>;
using LinearRampupPolynomialDecay = Schedule<LinearRampupPolynomialDecayShape>;
using LinearRampupPowerDecay = Schedule<LinearRampupPowerDecayShape>;
using CosineCycles = Schedule<CosineCyclesShape>;
using WarmupStableDecay = Schedule<WarmupStableDecayShape>;
using PiecewiseConstant = Schedule<PiecewiseConstantShape>;
using LinearRampupPiecewiseConstant = Schedule<LinearRampupPiecewiseConstantShape>;

extern template class HolderOf<BaseSchedule, ConstantSchedule::HParams>;
extern template class HolderOf<BaseSchedule, LinearRampupCosineDecay::HParams>;
extern template class HolderOf<BaseSchedule, LinearRampupExponentialDecay::HParams>;
extern template class HolderOf<BaseSchedule, LinearRampupLinearDecay::HParams>;

}  // namespace tessera
