// SPDX-License-Identifier: Apache-2.0
// The range of a field: the test of a value, and its text in messages and --describe.
#include "core/hparams/fields.h"

#include <cmath>

namespace tessera {

bool FieldInfo::allows(double value) const {
  const bool is_inside = min <= value && above < value && value <= max && value < below;
  return is_inside || value == also;
}

std::string FieldInfo::range() const {
  std::string words;
  const auto add = [&words](std::string_view relation, double bound) {
    if (!std::isfinite(bound)) return;
    words += fmt::format("{}{} {}", words.empty() ? "" : " and ", relation, bound);
  };
  const bool is_closed = std::isfinite(min) && std::isfinite(max);
  if (is_closed) words = fmt::format("{} to {}", min, max);
  if (!is_closed) add("at least", min);
  add("above", above);
  if (!is_closed) add("at most", max);
  add("below", below);
  if (!words.empty() && !unit.empty()) words += fmt::format(" {}", unit);
  if (also) words += fmt::format(", or {}", *also);
  return words;
}

}  // namespace tessera
