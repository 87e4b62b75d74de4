// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/schedules.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <tuple>

#include "core/base/error.h"

namespace tessera {

template class HolderOf<BaseSchedule, ConstantSchedule::HParams>;
template class HolderOf<BaseSchedule, LinearRampupCosineDecay::HParams>;
template class HolderOf<BaseSchedule, LinearRampupExponentialDecay::HParams>;
template class HolderOf<BaseSchedule, LinearRampupLinearDecay::HParams>;

namespace {

template <typename... Schedules>
using Registrars = std::tuple<TemplateRegistrar<BaseSchedule, Schedules>...>;
const Registrars<ConstantSchedule, LinearRampupCosineDecay, LinearRampupExponentialDecay,
                 LinearRampupLinearDecay, LinearRampupSqrtDecay, WarmupStableDecay,
                 PiecewiseConstant, LinearRampupPiecewiseConstant>
    kRegisterSchedules;

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// The factor of a linear warm-up: from 0 to 1 at `warmup_steps`.
double warmup(int64_t step, int64_t warmup_steps) {
  return step < warmup_steps ? ratio(step, warmup_steps) : 1.0;
}

// How far the decay is, from 0 at `start` to 1 at `end`.
double progress(int64_t step, int64_t start, int64_t end) {
  if (step >= end) return 1.0;
  return step > start ? ratio(step - start, end - start) : 0.0;
}

double decayed(Decay decay, double progress, double min_ratio) {
  switch (decay) {
    case Decay::kCosine:
      return min_ratio + (1.0 - min_ratio) * (0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
    case Decay::kExponential:
      return std::pow(min_ratio, progress);
    case Decay::kLinear:
      return 1.0 - (1.0 - min_ratio) * progress;
  }
  CHECK(false);
}

template <typename Shape>
void check_pieces(const Shape& p, size_t expected_values) {
  if (p.values.size() != expected_values)
    fail("{}: {} boundaries need {} values, got {}", p.kName, p.boundaries.size(), expected_values,
         p.values.size());
  if (std::adjacent_find(p.boundaries.begin(), p.boundaries.end(), std::greater_equal<>()) !=
      p.boundaries.end())
    fail("{}: boundaries must increase", p.kName);
}

// How many boundaries are at or before the step.
size_t passed(const std::vector<int64_t>& boundaries, int64_t step) {
  return static_cast<size_t>(std::upper_bound(boundaries.begin(), boundaries.end(), step) -
                             boundaries.begin());
}

}  // namespace

template <Decay decay>
void LinearRampupDecayShape<decay>::check() const {
  if (decay_start >= 0 && decay_start < warmup_steps)
    fail("{}: decay_start={} is before the end of the warm-up, warmup_steps={}", kName, decay_start,
         warmup_steps);
  if (decay_end >= 0 && decay_end < std::max(decay_start, warmup_steps))
    fail("{}: decay_end={} is before the start of the decay, step {}", kName, decay_end,
         std::max(decay_start, warmup_steps));
  if (decay == Decay::kExponential && min_ratio <= 0.0)
    fail("{}: min_ratio is {}, but an exponential never reaches zero; give a small positive ratio",
         kName, min_ratio);
}

template <Decay decay>
double LinearRampupDecayShape<decay>::factor(int64_t step, int64_t num_train_steps) const {
  const int64_t start = decay_start < 0 ? warmup_steps : decay_start;
  const int64_t end = decay_end < 0 ? num_train_steps : decay_end;
  return max * warmup(step, warmup_steps) * decayed(decay, progress(step, start, end), min_ratio);
}

template struct LinearRampupDecayShape<Decay::kCosine>;
template struct LinearRampupDecayShape<Decay::kExponential>;
template struct LinearRampupDecayShape<Decay::kLinear>;

double LinearRampupSqrtDecayShape::factor(int64_t step, int64_t) const {
  return max * (step < warmup_steps ? ratio(step, warmup_steps)
                                    : 1.0 / std::sqrt(ratio(step, warmup_steps)));
}

double WarmupStableDecayShape::factor(int64_t step, int64_t num_train_steps) const {
  const int64_t end = decay_end < 0 ? num_train_steps : decay_end;
  return max * warmup(step, warmup_steps) *
         decayed(Decay::kLinear, progress(step, end - decay_steps, end), min_ratio);
}

void PiecewiseConstantShape::check() const { check_pieces(*this, boundaries.size() + 1); }

double PiecewiseConstantShape::factor(int64_t step, int64_t) const {
  return values[passed(boundaries, step)];
}

void LinearRampupPiecewiseConstantShape::check() const {
  if (boundaries.empty()) fail("{}: expected at least one boundary", kName);
  check_pieces(*this, boundaries.size());
}

double LinearRampupPiecewiseConstantShape::factor(int64_t step, int64_t) const {
  const size_t at = passed(boundaries, step);
  if (at > 0) return values[at - 1];
  return values[0] * ratio(step, boundaries[0]);
}

}  // namespace tessera
