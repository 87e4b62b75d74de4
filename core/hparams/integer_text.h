// SPDX-License-Identifier: Apache-2.0
// Whole numbers as people type them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

// "1000", "+1000", "1_000" and "1e3"; nullopt for what is no whole number or does not fit.
std::optional<int64_t> parse_integer(std::string_view text);

}  // namespace tessera
