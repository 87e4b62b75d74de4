// SPDX-License-Identifier: Apache-2.0
// FIELDS lists a struct's members once; dump, load, overrides, comparison and copies follow from
// it:
//
//   struct HParams {
//     using Instance = Linear;                             // What is made from it,
//     static constexpr std::string_view kName = "Linear";  // and its name in TOML and --set.
//     Required<int64_t> output_dims;
//     bool use_bias = true;
//     FIELDS(output_dims, use_bias)
//   };
//
// A member left out of the list of an aggregate does not compile. Members may be bool, int64_t,
// double, std::string, DType, enums with a name table (enum_names.h), structs with FIELDS,
// Template<Base>, and Field, std::vector, std::optional and std::map<std::string, …> of those.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

#include "core/hparams/enum_names.h"
#include "core/hparams/field.h"

#define FIELDS(...)                                                                   \
  template <typename Visitor>                                                         \
  void fields(Visitor&& visitor) {                                                    \
    ::tessera::detail::visit_named(visitor, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
  }                                                                                   \
  template <typename Visitor>                                                         \
  void fields(Visitor&& visitor) const {                                              \
    ::tessera::detail::visit_named(visitor, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
  }                                                                                   \
  static constexpr size_t field_count() { return ::tessera::detail::count_names(#__VA_ARGS__); }

namespace tessera {

template <typename P>
concept HasFields = requires {
  P::field_count();
};

namespace detail {

constexpr size_t count_names(std::string_view names) {
  if (names.empty()) return 0;
  size_t count = 1;
  for (char c : names) count += c == ',' ? 1 : 0;
  return count;
}

// Takes the first name off "a, b, c".
constexpr std::string_view take_name(std::string_view& names) {
  const size_t comma = names.find(',');
  const std::string_view name = names.substr(0, comma);
  const size_t next = names.find_first_not_of(", ", name.size());
  names = next < names.size() ? names.substr(next) : std::string_view();
  return name;
}

template <typename Visitor, typename... Members>
void visit_named(Visitor& visitor, [[maybe_unused]] std::string_view names, Members&... members) {
  (visitor(take_name(names), members), ...);
}

// How many members an aggregate has: the longest list of values that can initialise it, each of
// which converts to anything. (std::optional's own converting constructor would make that
// ambiguous, hence the second kind of value.)
struct AnyField {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor): converting is what it is for.
};
struct AnyOptional {
  template <typename T>
  operator std::optional<T>() const;  // NOLINT(google-explicit-constructor)
};

template <typename P, typename... Values>
constexpr size_t arity() {
  if constexpr (requires { P{Values{}..., AnyField{}}; }) {
    return arity<P, Values..., AnyField>();
  } else if constexpr (requires { P{Values{}..., AnyOptional{}}; }) {
    return arity<P, Values..., AnyOptional>();
  } else {
    return sizeof...(Values);
  }
}

template <typename From, typename To>
using WithConstOf = std::conditional_t<std::is_const_v<From>, const To, To>;

}  // namespace detail

// Calls visitor(name, member) for every field, in the order of FIELDS; those of `Base` come first,
// for the derived structs of experiments.
template <typename P, typename Visitor>
void visit_fields(P& p, Visitor&& visitor) {
  using Plain = std::remove_const_t<P>;
  if constexpr (std::is_aggregate_v<Plain>)
    static_assert(detail::arity<Plain>() == Plain::field_count(), "a field is missing from FIELDS");
  if constexpr (requires { typename Plain::Base; })
    visit_fields(static_cast<detail::WithConstOf<P, typename Plain::Base>&>(p), visitor);
  p.fields(visitor);
}

}  // namespace tessera
