// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/config/search_space.h"

#include "core/hparams/tree.h"

namespace tessera {
namespace {

SweepValues distribution(SweepValues::Kind kind, double low, double high) {
  SweepValues values;
  values.kind = kind;
  values.low = low;
  values.high = high;
  return values;
}

}  // namespace

std::string SweepValue::number_text(double value) { return double_text(value); }

SweepValues::SweepValues(std::initializer_list<SweepValue> values) {
  for (const SweepValue& value : values) listed.push_back(value.text());
}

SweepValues uniform(double low, double high) {
  return distribution(SweepValues::Kind::kUniform, low, high);
}

SweepValues log_uniform(double low, double high) {
  return distribution(SweepValues::Kind::kLogUniform, low, high);
}

SweepValues uniform_integer(int64_t low, int64_t high) {
  return distribution(SweepValues::Kind::kUniformInteger, static_cast<double>(low),
                      static_cast<double>(high));
}

Sweep grid(std::vector<SweepAxis> axes) { return {.axes = std::move(axes)}; }

Sweep random_space(std::vector<SweepAxis> axes, int64_t num_trials, int64_t seed) {
  return {.axes = std::move(axes), .num_trials = num_trials, .seed = seed};
}

}  // namespace tessera
