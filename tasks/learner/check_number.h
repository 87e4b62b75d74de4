// SPDX-License-Identifier: Apache-2.0
// Checks of the numbers that optimizers, schedules and the learner are configured with.
#pragma once

#include <string_view>

namespace tessera {

// Errors such as "AdamW: learning_rate is -1, expected 0 or more", also for NaN, infinity and what
// is not finite in f32, in which a step computes.
void check_not_negative(std::string_view owner, std::string_view field, double value);
void check_finite(std::string_view owner, std::string_view field, double value);

}  // namespace tessera
