// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/trials.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/hparams/tree.h"

namespace tessera {
namespace {

using Kind = SweepValues::Kind;

void check_axis(const SweepAxis& axis, bool is_grid) {
  const SweepValues& values = axis.values;
  if (axis.path.empty()) fail("the sweep has an axis without a path");
  if (values.kind == Kind::kListed) {
    if (values.listed.empty())
      fail("the sweep gives no value for {}; expected at least one", axis.path);
    return;
  }
  if (is_grid)
    fail(
        "{} has a distribution, which has no list of values for a grid; give the number of trials "
        "to draw (--sweep_trials=20, or random_space(…, 20) in search()), or list values",
        axis.path);
  if (!std::isfinite(values.low) || !std::isfinite(values.high) || values.low >= values.high)
    fail("{}: the bounds of the distribution are {} and {}; expected finite ones, the lower first",
         axis.path, values.low, values.high);
  if (values.kind == Kind::kLogUniform && values.low <= 0.0)
    fail("{}: the lower bound of log_uniform is {}, expected more than 0", axis.path, values.low);
}

// A number in [0, 1) with 53 random bits, a function of the seed, the axis and the trial: adding an
// axis does not change the draws of the others.
double draw(uint64_t seed, const std::string& path, int64_t trial) {
  const PhiloxBlock bits = philox(random_key(seed, path), static_cast<uint64_t>(trial), 0);
  const uint64_t word = (uint64_t{bits[0]} << 32 | bits[1]) >> 11;
  return static_cast<double>(word) * 0x1p-53;
}

// The value with four significant digits, within the bounds.
std::string rounded(double value, const SweepValues& values) {
  const double near = std::stod(fmt::format("{:.4g}", value));
  return double_text(std::clamp(near, values.low, values.high));
}

std::string drawn_value(const SweepValues& values, double at) {
  switch (values.kind) {
    case Kind::kListed:
      return values.listed[static_cast<size_t>(at * static_cast<double>(values.listed.size()))];
    case Kind::kUniform:
      return rounded(values.low + at * (values.high - values.low), values);
    case Kind::kLogUniform:
      return rounded(values.low * std::pow(values.high / values.low, at), values);
    case Kind::kUniformInteger:
      return std::to_string(
          std::llround(std::floor(values.low + at * (values.high - values.low + 1.0))));
  }
  return "";
}

// The combination numbered `index`, from 0.
std::vector<TrialSetting> combination(const Sweep& sweep, int64_t index) {
  std::vector<TrialSetting> settings;
  for (auto axis = sweep.axes.rbegin(); axis != sweep.axes.rend(); ++axis) {
    const auto size = static_cast<int64_t>(axis->values.listed.size());
    settings.push_back({axis->path, axis->values.listed[static_cast<size_t>(index % size)]});
    index /= size;
  }
  std::reverse(settings.begin(), settings.end());
  return settings;
}

std::vector<TrialSetting> drawn(const Sweep& sweep, int64_t trial) {
  std::vector<TrialSetting> settings;
  for (const SweepAxis& axis : sweep.axes)
    settings.push_back({axis.path, drawn_value(axis.values, draw(static_cast<uint64_t>(sweep.seed),
                                                                 axis.path, trial))});
  return settings;
}

// Beyond kMostTrials it is not exact.
int64_t number_of_trials(const Sweep& sweep) {
  if (sweep.num_trials > 0) return sweep.num_trials;
  int64_t combinations = 1;
  for (const SweepAxis& axis : sweep.axes)
    combinations =
        std::min(combinations * static_cast<int64_t>(axis.values.listed.size()), kMostTrials + 1);
  return combinations;
}

void check_space(const Sweep& sweep) {
  if (sweep.axes.empty()) fail("the sweep varies nothing");
  if (sweep.num_trials < 0)
    fail("the sweep has {} trials, expected at least 1, or 0 for a grid", sweep.num_trials);
  std::set<std::string> seen;
  for (const SweepAxis& axis : sweep.axes) {
    check_axis(axis, sweep.num_trials == 0);
    if (!seen.insert(axis.path).second)
      fail("the sweep gives {} twice; give all of its values together", axis.path);
  }
  if (number_of_trials(sweep) > kMostTrials)
    fail(
        "the sweep has more than {} trials; list fewer values, or draw some combinations "
        "(--sweep_trials=100)",
        kMostTrials);
}

}  // namespace

std::string SweepTrial::directory() const { return fmt::format("trial_{:04}", number); }

std::string SweepTrial::text() const { return fmt::format("{}", fmt::join(sets(), " ")); }

std::vector<std::string> SweepTrial::sets() const {
  std::vector<std::string> sets;
  for (const TrialSetting& setting : settings) sets.push_back(setting.path + "=" + setting.value);
  return sets;
}

std::vector<SweepTrial> trials_of(const Sweep& sweep) {
  check_space(sweep);
  std::vector<SweepTrial> trials;
  for (int64_t number = 1; number <= number_of_trials(sweep); ++number)
    trials.push_back(
        {number, sweep.num_trials > 0 ? drawn(sweep, number) : combination(sweep, number - 1)});
  return trials;
}

}  // namespace tessera
