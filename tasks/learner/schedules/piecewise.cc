// SPDX-License-Identifier: Apache-2.0
#include "tasks/learner/schedules/piecewise.h"

#include <algorithm>
#include <functional>

#include "core/base/error.h"
#include "tasks/learner/check_number.h"

namespace tessera {

template class HolderOf<BaseSchedule, PiecewiseConstant::HParams>;
template class HolderOf<BaseSchedule, LinearRampupPiecewiseConstant::HParams>;

namespace {

const TemplateRegistrar<BaseSchedule, PiecewiseConstant> kRegisterPiecewise;
const TemplateRegistrar<BaseSchedule, LinearRampupPiecewiseConstant> kRegisterRampup;

template <typename HParams>
void check_pieces(const HParams& p, size_t expected_values) {
  for (size_t i = 0; i < p.values.size(); ++i)
    check_not_negative(p.kName, fmt::format("values[{}]", i), p.values[i]);
  if (p.values.size() != expected_values)
    fail("{}: {} boundaries take {} values, got {}", HParams::kName, p.boundaries.size(),
         expected_values, p.values.size());
  if (std::adjacent_find(p.boundaries.begin(), p.boundaries.end(), std::greater_equal<>()) !=
      p.boundaries.end())
    fail("{}: boundaries must rise", HParams::kName);
}

// How many boundaries lie at or before the step.
size_t passed(const std::vector<int64_t>& boundaries, int64_t step) {
  return static_cast<size_t>(std::upper_bound(boundaries.begin(), boundaries.end(), step) -
                             boundaries.begin());
}

}  // namespace

PiecewiseConstant::PiecewiseConstant(const HParams& p) : p_(p) {
  check_pieces(p, p.boundaries.size() + 1);
}

double PiecewiseConstant::value(int64_t step, int64_t) const {
  return p_.values[passed(p_.boundaries, step)];
}

LinearRampupPiecewiseConstant::LinearRampupPiecewiseConstant(const HParams& p) : p_(p) {
  if (p.boundaries.empty()) fail("{}: expected at least one boundary", HParams::kName);
  check_pieces(p, p.boundaries.size());
}

double LinearRampupPiecewiseConstant::value(int64_t step, int64_t) const {
  const size_t at = passed(p_.boundaries, step);
  if (at > 0) return p_.values[at - 1];
  return p_.values[0] * static_cast<double>(step) / static_cast<double>(p_.boundaries[0]);
}

}  // namespace tessera
