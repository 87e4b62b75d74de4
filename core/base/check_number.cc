// SPDX-License-Identifier: Apache-2.0
#include "core/base/check_number.h"

#include <cmath>

#include "core/base/error.h"
#include "core/base/numbers.h"

namespace tessera {

void check_finite(std::string_view owner, std::string_view field, double value) {
  if (!std::isfinite(static_cast<float>(value)))
    fail("{}: {} is {}, expected a finite number (at most 3.4e38)", owner, field, plain_nan(value));
}

void check_not_negative(std::string_view owner, std::string_view field, double value) {
  check_finite(owner, field, value);
  if (value < 0.0) fail("{}: {} is {}, expected 0 or more", owner, field, value);
}

void check_fraction(std::string_view owner, std::string_view field, double value) {
  if (!(value >= 0.0 && value < 1.0))
    fail("{}: {} is {}, expected 0 <= {} < 1", owner, field, plain_nan(value), field);
}

void check_at_least(std::string_view owner, std::string_view field, int64_t value, int64_t least) {
  if (value < least) fail("{}: {} is {}, expected at least {}", owner, field, value, least);
}

}  // namespace tessera
