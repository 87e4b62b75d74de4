// SPDX-License-Identifier: Apache-2.0
// Texts that the tables of a plan share. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera {

inline constexpr size_t kPlanColumns = 100;

// "x_layers[3].ffn" -> "x_layers[].ffn".
std::string without_indices(const std::string& path);

// "1.25 GiB", with three digits.
std::string size_text(int64_t bytes);

// At most `width` columns; keeps the end of a path, which is the most specific part.
std::string ending(std::string text, size_t width);

}  // namespace tessera
