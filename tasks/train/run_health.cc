// SPDX-License-Identifier: Apache-2.0
#include "tasks/train/run_health.h"

#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {

bool most_are_skipped(int64_t skipped, int64_t steps) { return skipped > steps / 2; }

std::optional<std::string> undefined_loss(const std::map<std::string, double>& metrics) {
  constexpr std::string_view kLoss = "/loss";
  for (const auto& [name, value] : metrics) {
    if (!name.ends_with(kLoss) || std::isfinite(value)) continue;
    const auto weight = metrics.find(name.substr(0, name.size() - kLoss.size()) + "/weight");
    if (weight != metrics.end() && weight->second > 0.0)
      return fmt::format("{} is {}", name, plain_nan(value));
  }
  return std::nullopt;
}

}  // namespace tessera
