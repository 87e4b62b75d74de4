// SPDX-License-Identifier: Apache-2.0
#include "tasks/session/early_stopper.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {

std::string EarlyStopper::observe(const std::map<std::string, double>& metrics) {
  if (p_.metric.empty()) return "";
  const auto found = metrics.find(p_.metric);
  CHECK(found != metrics.end(), "no metric {}", p_.metric);
  const double value = found->second;
  if (value < state_.best - p_.min_improvement) {
    state_ = {value, 0};
  } else {
    ++state_.evals_since_best;
  }
  if (p_.stop_at_target && value <= p_.target)
    return fmt::format("{} = {:.4f} has reached the target {}", p_.metric, value, p_.target);
  if (p_.patience_evals > 0 && state_.evals_since_best >= p_.patience_evals)
    return fmt::format("{} has not improved on {:.4f} for {} evaluations", p_.metric, state_.best,
                       state_.evals_since_best);
  return "";
}

}  // namespace tessera
