// SPDX-License-Identifier: Apache-2.0
// Names of enumerators in TOML, --set and messages. Beside an enum stands its table, which is found
// by the enum's namespace:
//
//   enum class Labels { kShiftRight, kNextToken };
//   constexpr std::array<EnumName<Labels>, 2> enum_names(Labels) {
//     return {{{Labels::kShiftRight, "shift_right"}, {Labels::kNextToken, "next_token"}}};
//   }
#pragma once

#include <array>
#include <string_view>
#include <type_traits>

#include "core/base/error.h"

namespace tessera {

template <typename E>
struct EnumName {
  E value;
  std::string_view name;
};

template <typename E>
concept NamedEnum = std::is_enum_v<E> && requires(E value) {
  enum_names(value);
};

template <NamedEnum E>
std::string_view enum_name(E value) {
  for (const auto& row : enum_names(value))
    if (row.value == value) return row.name;
  CHECK(false, "enumerator {} has no name", static_cast<int>(value));
  return {};
}

}  // namespace tessera
