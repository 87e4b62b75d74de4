// SPDX-License-Identifier: Apache-2.0
// Which documents are held out for validation. Their text alone decides, so the choice is the same
// in every order, shard layout and format, and equal documents are never on both sides.
#pragma once

#include <string_view>

namespace tessera {

// About `fraction` of all different texts are.
bool is_held_out(std::string_view text, double fraction);

// Error, unless 0 <= fraction < 1.
void check_validation_fraction(double fraction);

}  // namespace tessera
