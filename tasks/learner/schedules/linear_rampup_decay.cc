// SPDX-License-Identifier: Apache-2.0
#include "tasks/learner/schedules/linear_rampup_decay.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "tasks/learner/check_number.h"

namespace tessera {

template class HolderOf<BaseSchedule, LinearRampupCosineDecay::HParams>;
template class HolderOf<BaseSchedule, LinearRampupExponentialDecay::HParams>;
template class HolderOf<BaseSchedule, LinearRampupLinearDecay::HParams>;
template class HolderOf<BaseSchedule, LinearRampupSqrtDecay::HParams>;
template class HolderOf<BaseSchedule, WarmupStableDecay::HParams>;

namespace {

const TemplateRegistrar<BaseSchedule, LinearRampupCosineDecay> kRegisterCosine;
const TemplateRegistrar<BaseSchedule, LinearRampupExponentialDecay> kRegisterExponential;
const TemplateRegistrar<BaseSchedule, LinearRampupLinearDecay> kRegisterLinear;
const TemplateRegistrar<BaseSchedule, LinearRampupSqrtDecay> kRegisterSqrt;
const TemplateRegistrar<BaseSchedule, WarmupStableDecay> kRegisterStable;

// Where a step is: the warm-up's share so far, and the decay's.
struct DecayProgress {
  double warmup = 1.0;
  double decay = 0.0;
};

DecayProgress progress(int64_t step, int64_t warmup_steps, int64_t decay_start, int64_t decay_end) {
  DecayProgress result;
  if (step < warmup_steps)
    result.warmup = static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (step >= decay_end) {
    result.decay = 1.0;
  } else if (step > decay_start) {
    result.decay =
        static_cast<double>(step - decay_start) / static_cast<double>(decay_end - decay_start);
  }
  return result;
}

// The three decays whose HParams look alike.
template <typename HParams>
DecayProgress progress(const HParams& p, int64_t step, int64_t num_train_steps) {
  const int64_t start = p.decay_start < 0 ? p.warmup_steps : p.decay_start;
  return progress(step, p.warmup_steps, start, p.decay_end < 0 ? num_train_steps : p.decay_end);
}

void check_steps(std::string_view name, int64_t value) {
  if (value < 0) fail("{} is {}, expected 0 or more", name, value);
}

template <typename HParams>
void check_factors(const HParams& p) {
  check_not_negative(p.kName, "max", p.max);
  check_not_negative(p.kName, "min_ratio", p.min_ratio);
}

template <typename HParams>
void check_rampup(const HParams& p) {
  check_factors(p);
  check_steps("warmup_steps", p.warmup_steps);
  if (p.decay_start >= 0 && p.decay_start < p.warmup_steps)
    fail("{}: decay_start={} lies before the end of the warm-up, warmup_steps={}", HParams::kName,
         p.decay_start, p.warmup_steps);
  if (p.decay_end >= 0 && p.decay_end < std::max(p.decay_start, p.warmup_steps))
    fail("{}: decay_end={} lies before the decay starts", HParams::kName, p.decay_end);
}

}  // namespace

LinearRampupCosineDecay::LinearRampupCosineDecay(const HParams& p) : p_(p) { check_rampup(p); }

double LinearRampupCosineDecay::value(int64_t step, int64_t num_train_steps) const {
  const DecayProgress at = progress(p_, step, num_train_steps);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * at.decay));
  return p_.max * at.warmup * (p_.min_ratio + (1.0 - p_.min_ratio) * cosine);
}

LinearRampupExponentialDecay::LinearRampupExponentialDecay(const HParams& p) : p_(p) {
  check_rampup(p);
  if (p.min_ratio <= 0.0)
    fail("{}: min_ratio is {}, but an exponential never reaches zero; give a small positive ratio",
         HParams::kName, p.min_ratio);
}

double LinearRampupExponentialDecay::value(int64_t step, int64_t num_train_steps) const {
  const DecayProgress at = progress(p_, step, num_train_steps);
  return p_.max * at.warmup * std::pow(p_.min_ratio, at.decay);
}

LinearRampupLinearDecay::LinearRampupLinearDecay(const HParams& p) : p_(p) { check_rampup(p); }

double LinearRampupLinearDecay::value(int64_t step, int64_t num_train_steps) const {
  const DecayProgress at = progress(p_, step, num_train_steps);
  return p_.max * at.warmup * (1.0 - (1.0 - p_.min_ratio) * at.decay);
}

LinearRampupSqrtDecay::LinearRampupSqrtDecay(const HParams& p) : p_(p) {
  check_not_negative(p.kName, "max", p.max);
  if (p.warmup_steps < 1)
    fail("{}: warmup_steps is {}, expected at least 1, since the decay is counted in them",
         HParams::kName, p.warmup_steps);
}

double LinearRampupSqrtDecay::value(int64_t step, int64_t) const {
  const double ratio = static_cast<double>(step) / static_cast<double>(p_.warmup_steps);
  return p_.max * (ratio < 1.0 ? ratio : 1.0 / std::sqrt(ratio));
}

WarmupStableDecay::WarmupStableDecay(const HParams& p) : p_(p) {
  check_factors(p);
  check_steps("warmup_steps", p.warmup_steps);
  check_steps("decay_steps", p.decay_steps);
}

double WarmupStableDecay::value(int64_t step, int64_t num_train_steps) const {
  const int64_t end = p_.decay_end < 0 ? num_train_steps : p_.decay_end;
  const DecayProgress at = progress(step, p_.warmup_steps, end - p_.decay_steps, end);
  return p_.max * at.warmup * (1.0 - (1.0 - p_.min_ratio) * at.decay);
}

}  // namespace tessera
