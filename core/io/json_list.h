// SPDX-License-Identifier: Apache-2.0
// Writes lists in JSON texts (json.h has objects), and base64 in their strings.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tessera {

// Writes "[1, 2]": numbers, JSON texts, or the JSON that `text` makes of each element.
template <typename List, typename Text = std::identity>
std::string json_list(const List& list, const Text& text = {}, std::string_view between = ", ") {
  std::string all;
  for (const auto& item : list)
    all += fmt::format("{}{}", all.empty() ? std::string_view() : between, std::invoke(text, item));
  return "[" + all + "]";
}

// Encodes as RFC 4648 defines.
std::string base64(std::string_view bytes);

}  // namespace tessera
