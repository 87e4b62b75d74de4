// SPDX-License-Identifier: Apache-2.0
// Breaks text into lines for a terminal.
#pragma once

#include <cstddef>
#include <string>

namespace tessera {

inline constexpr size_t kTextColumns = 100;

// Returns lines of at most kTextColumns, broken at spaces, each indented and ended.
std::string wrapped(const std::string& text, size_t indent);

}  // namespace tessera
