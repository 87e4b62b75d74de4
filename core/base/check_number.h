// SPDX-License-Identifier: Apache-2.0
// Checks of configured numbers. Each throws an Error such as
// "AdamW: learning_rate is -1, expected 0 or more". Real numbers must be finite in f32, in which a
// step computes.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

void check_finite(std::string_view owner, std::string_view field, double value);
void check_not_negative(std::string_view owner, std::string_view field, double value);
// 0 <= value < 1.
void check_fraction(std::string_view owner, std::string_view field, double value);
void check_at_least(std::string_view owner, std::string_view field, int64_t value, int64_t least);

}  // namespace tessera
