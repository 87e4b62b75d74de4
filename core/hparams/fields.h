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
// A member left out of the list of an aggregate does not compile; the message names it
// (fields_check.h). Members may be bool, int64_t, double, std::string, DType, enums with a name
// table (enum_names.h), structs with FIELDS, Template<Base>, and Field, std::vector, std::optional
// and std::map<std::string, …> of those. The fields of a member whose struct has
// `static constexpr bool kInlined = true` are inlined: no path and no file names the member itself.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "core/hparams/enum_names.h"
#include "core/hparams/field.h"
#include "core/hparams/fields_check.h"

#define FIELDS(...)                                                                   \
  template <typename Visitor>                                                         \
  void fields(Visitor&& visitor) {                                                    \
    ::tessera::detail::visit_named(visitor, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
  }                                                                                   \
  template <typename Visitor>                                                         \
  void fields(Visitor&& visitor) const {                                              \
    ::tessera::detail::visit_named(visitor, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
  }                                                                                   \
  static constexpr std::string_view field_names() { return #__VA_ARGS__; }            \
  auto fields_owner() const->std::remove_cvref_t<decltype(*this)>*;

namespace tessera {

namespace detail {

// A struct of fields that stand among those of the struct it is a member of.
template <typename T>
concept Inlined = T::kInlined;

template <typename Visitor, typename Member>
void visit_member(Visitor& visitor, std::string_view name, Member& member) {
  if constexpr (Inlined<std::remove_const_t<Member>>) {
    member.fields(visitor);
  } else {
    visitor(name, member);
  }
}

template <typename Visitor, typename... Members>
void visit_named(Visitor& visitor, [[maybe_unused]] std::string_view names, Members&... members) {
  (visit_member(visitor, take_name(names), members), ...);
}

template <typename From, typename To>
using WithConstOf = std::conditional_t<std::is_const_v<From>, const To, To>;

}  // namespace detail

// Calls visitor(name, member) for every field, in the order of FIELDS; those of `Base` come first,
// for the derived structs of experiments.
template <typename P, typename Visitor>
void visit_fields(P& p, Visitor&& visitor) {
  using Plain = std::remove_const_t<P>;
  detail::check_fields<Plain>();
  if constexpr (requires { typename Plain::Base; })
    visit_fields(static_cast<detail::WithConstOf<P, typename Plain::Base>&>(p), visitor);
  p.fields(visitor);
}

}  // namespace tessera
