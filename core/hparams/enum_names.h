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
#include <cstdint>
#include <string_view>
#include <type_traits>

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

namespace detail {
[[noreturn]] void fail_unnamed(int64_t enumerator);  // A gap in a table is a bug of ours.
}  // namespace detail

template <NamedEnum E>
std::string_view enum_name(E value) {
  for (const auto& row : enum_names(value))
    if (row.value == value) return row.name;
  detail::fail_unnamed(static_cast<int64_t>(value));
}

}  // namespace tessera
