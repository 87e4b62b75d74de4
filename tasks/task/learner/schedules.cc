// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

namespace tessera {

template class HolderOf<BaseSchedule, ConstantSchedule::HParams>;
template class HolderOf<BaseSchedule, LinearRampupCosineDecay::HParams>;
template class HolderOf<BaseSchedule, LinearRampupExponentialDecay::HParams>;
template class HolderOf<BaseSchedule, LinearRampupLinearDecay::HParams>;

namespace {

template <typename... Schedules>
using Registrars = std::tuple<TemplateRegistrar<BaseSchedule, Schedules>...>;
const Registrars<ConstantSchedule, LinearRampupCosineDecay, LinearRampupExponentialDecay,
                 LinearRampupLinearDecay, LinearRampupSqrtDecay, LinearRampupPolynomialDecay,
                 LinearRampupPowerDecay, CosineCycles, WarmupStableDecay, PiecewiseConstant,
                 LinearRampupPiecewiseConstant, PiecewiseSchedule>
    kRegisterSchedules;

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// The factor of a linear warm-up: from `start` to 1 at `warmup_steps`.
double warmup(int64_t step, int64_t warmup_steps, double start = 0.0) {
  return step < warmup_steps ? start + (1.0 - start) * ratio(step, warmup_steps) : 1.0;
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
    case Decay::kOneMinusSqrt:
      return 1.0 - (1.0 - min_ratio) * std::sqrt(progress);
  }
  CHECK(false);
}

void check_exponential(std::string_view name, Decay decay, double min_ratio) {
  if (decay == Decay::kExponential && min_ratio <= 0.0)
    fail("{}: min_ratio is {}, but an exponential never reaches zero; give a small positive ratio",
         name, min_ratio);
}

// Error for a decay that ends before step `start`.
void check_end(std::string_view name, int64_t decay_end, int64_t start) {
  if (decay_end >= 0 && decay_end < start)
    fail("{}: decay_end={} is before the start of the decay, step {}", name, decay_end, start);
}

void check_start(std::string_view name, int64_t decay_start, int64_t warmup_steps) {
  if (decay_start >= 0 && decay_start < warmup_steps)
    fail("{}: decay_start={} is before the end of the warm-up, warmup_steps={}", name, decay_start,
         warmup_steps);
}

void check_boundaries(std::string_view name, const std::vector<int64_t>& boundaries) {
  const auto not_above =
      std::adjacent_find(boundaries.begin(), boundaries.end(), std::greater_equal<>());
  if (not_above != boundaries.end())
    fail("{}: boundaries must increase, but {} is before {}", name, not_above[0], not_above[1]);
}

template <typename Shape>
void check_pieces(const Shape& p, size_t expected_values) {
  if (p.values.size() != expected_values)
    fail("{}: {} boundaries need {} values, got {}", p.kName, p.boundaries.size(), expected_values,
         p.values.size());
  check_boundaries(p.kName, p.boundaries);
}

// How many boundaries are at or before the step.
size_t passed(const std::vector<int64_t>& boundaries, int64_t step) {
  return static_cast<size_t>(std::upper_bound(boundaries.begin(), boundaries.end(), step) -
                             boundaries.begin());
}

}  // namespace

template <Decay decay>
void LinearRampupDecayShape<decay>::check() const {
  check_start(kName, decay_start, warmup_steps);
  check_end(kName, decay_end, std::max(decay_start, warmup_steps));
  check_exponential(kName, decay, min_ratio);
}

template <Decay decay>
double LinearRampupDecayShape<decay>::factor(int64_t step, int64_t num_train_steps) const {
  const int64_t start = decay_start < 0 ? warmup_steps : decay_start;
  const int64_t end = decay_end < 0 ? num_train_steps : decay_end;
  return max * warmup(step, warmup_steps, warmup_start) *
         decayed(decay, progress(step, start, end), min_ratio);
}

template struct LinearRampupDecayShape<Decay::kCosine>;
template struct LinearRampupDecayShape<Decay::kExponential>;
template struct LinearRampupDecayShape<Decay::kLinear>;

double LinearRampupSqrtDecayShape::factor(int64_t step, int64_t) const {
  return max * (step < warmup_steps ? ratio(step, warmup_steps)
                                    : 1.0 / std::sqrt(ratio(step, warmup_steps)));
}

void LinearRampupPolynomialDecayShape::check() const { check_end(kName, decay_end, warmup_steps); }

double LinearRampupPolynomialDecayShape::factor(int64_t step, int64_t num_train_steps) const {
  const int64_t end = decay_end < 0 ? num_train_steps : decay_end;
  const double left = std::pow(1.0 - progress(step, warmup_steps, end), power);
  return max * warmup(step, warmup_steps, warmup_start) * (min_ratio + (1.0 - min_ratio) * left);
}

void LinearRampupPowerDecayShape::check() const { check_start(kName, decay_start, warmup_steps); }

double LinearRampupPowerDecayShape::factor(int64_t step, int64_t) const {
  const int64_t start = decay_start < 0 ? warmup_steps : decay_start;
  const double decay = step > start ? std::pow(ratio(start, step), exponent) : 1.0;
  return max * warmup(step, warmup_steps, warmup_start) * decay;
}

double CosineCyclesShape::factor(int64_t step, int64_t) const {
  if (step < warmup_steps) return max * warmup(step, warmup_steps, warmup_start);
  double at = static_cast<double>(step - warmup_steps), length = static_cast<double>(cycle_steps);
  double cycles = growth > 1.0 ? 0.0 : std::floor(at / length);
  at -= cycles * length;
  for (; at >= length; length = std::round(length * growth), ++cycles) at -= length;
  return max * std::pow(peak_ratio, cycles) * decayed(Decay::kCosine, at / length, min_ratio);
}

void WarmupStableDecayShape::check() const { check_exponential(kName, decay, min_ratio); }

double WarmupStableDecayShape::factor(int64_t step, int64_t num_train_steps) const {
  const int64_t end = decay_end < 0 ? num_train_steps : decay_end;
  return max * warmup(step, warmup_steps, warmup_start) *
         decayed(decay, progress(step, end - decay_steps, end), min_ratio);
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

PiecewiseSchedule::PiecewiseSchedule(const HParams& p) : starts_(p.boundaries) {
  if (p.schedules_tpl.size() != p.boundaries.size() + 1)
    fail("PiecewiseSchedule: {} boundaries need {} schedules, got {}", p.boundaries.size(),
         p.boundaries.size() + 1, p.schedules_tpl.size());
  check_boundaries("PiecewiseSchedule", p.boundaries);
  starts_.insert(starts_.begin(), 0);
  for (const Template<BaseSchedule>& each : p.schedules_tpl) pieces_.push_back(each.instantiate());
}

double PiecewiseSchedule::value(int64_t step, int64_t num_train_steps) const {
  const size_t at = std::max<size_t>(passed(starts_, step), 1) - 1;
  const int64_t end = at + 1 < starts_.size() ? starts_[at + 1] : num_train_steps;
  return pieces_[at]->value(step - starts_[at], std::max<int64_t>(end - starts_[at], 0));
}

int64_t PiecewiseSchedule::decay_end() const {
  const int64_t end = pieces_.back()->decay_end();
  return end < 0 ? end : starts_.back() + end;
}

}  // namespace tessera
