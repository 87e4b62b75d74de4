// SPDX-License-Identifier: Apache-2.0
// Compile-time checks of FIELDS (fields.h). The first line of the compiler's message names the
// struct and the member:
//
//   error: use of deleted function 'void tessera::member_is_not_in_FIELDS()
//     [with Struct = mine::Ffn::HParams; auto member = tessera::Name<6>{"width"}]'
//
// For a struct without mistakes nothing more is instantiated.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#if defined(__GNUC__) && !defined(__clang__)
#include <tr2/type_traits>
#endif

namespace tessera {

template <typename P>
concept HasFields = requires {
  P::field_names();
};

template <size_t size>
struct Name {
  char text[size] = {};
};

// The message is the name of the deleted function and its [with …].
template <typename Struct>
void FIELDS_is_missing() = delete;  // Add FIELDS(member, …), or FIELDS().
template <typename Struct, auto member>
void member_is_not_in_FIELDS() = delete;
template <typename Struct>
void FIELDS_lists_more_names_than_members() = delete;
template <typename Struct, typename DirectBase>
void using_Base_is_missing() = delete;  // Add using Base = DirectBase;
template <typename HParams, typename Base>
void Instance_is_missing_or_not_derived_from_Base() = delete;  // using Instance = …;
template <typename HParams>
void Instance_is_abstract() = delete;  // A layer overrides fprop with its base's signature.
template <typename HParams>
void HParams_are_in_an_anonymous_namespace() = delete;  // Name it: namespace mine { … }

namespace detail {

// Returns where the first item of "a, About(b, {.text = \"c, d\"}), e" ends: at a comma outside of
// brackets and quotes.
constexpr size_t end_of_item(std::string_view items) {
  int depth = 0;
  bool is_quoted = false;
  for (size_t i = 0; i < items.size(); ++i) {
    const char c = items[i];
    if (is_quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (!is_quoted && (c == '(' || c == '{')) {
      ++depth;
    } else if (!is_quoted && (c == ')' || c == '}')) {
      --depth;
    } else if (c == ',' && depth == 0) {  // Quotes are inside of About(…).
      return i;
    }
  }
  return items.size();
}

// Takes the name of the first item off "a, About(b, {…}), c".
constexpr std::string_view take_name(std::string_view& names) {
  const size_t end = end_of_item(names);
  std::string_view name = names.substr(0, end);
  if (const size_t open = name.find('('); open != std::string_view::npos) {
    name.remove_prefix(name.find_first_not_of(' ', open + 1));
    name = name.substr(0, name.find_first_of(" ,"));
  }
  const size_t next = names.find_first_not_of(", ", end);
  names = next < names.size() ? names.substr(next) : std::string_view();
  return name;
}

constexpr size_t count_names(std::string_view names) {
  size_t count = 0;
  for (; !names.empty(); ++count) take_name(names);
  return count;
}

constexpr bool has_name(std::string_view names, std::string_view wanted) {
  while (!names.empty())
    if (take_name(names) == wanted) return true;
  return false;
}

// The number of members of an aggregate is the length of the longest list of values, each
// convertible to anything, that can initialise it. (std::optional's converting constructor would
// make AnyField ambiguous, hence the second type.)
struct AnyField {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor): converts on purpose.
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

consteval auto pointers_to(const auto&... members) { return std::tuple(&members...); }

// Returns pointers to the `count` members of the aggregate `object`; none if there are more than
// 24. The language has no way to write this once for all counts.
template <size_t count>
consteval auto pointers_to_members(const auto& object) {
  // clang-format off
#define TESSERA_MEMBERS(number, ...)                    \
  if constexpr (count == number) {                      \
    const auto& [__VA_ARGS__] = object;                 \
    return pointers_to(__VA_ARGS__);                    \
  }
  TESSERA_MEMBERS(1, a)
  TESSERA_MEMBERS(2, a, b)
  TESSERA_MEMBERS(3, a, b, c)
  TESSERA_MEMBERS(4, a, b, c, d)
  TESSERA_MEMBERS(5, a, b, c, d, e)
  TESSERA_MEMBERS(6, a, b, c, d, e, f)
  TESSERA_MEMBERS(7, a, b, c, d, e, f, g)
  TESSERA_MEMBERS(8, a, b, c, d, e, f, g, h)
  TESSERA_MEMBERS(9, a, b, c, d, e, f, g, h, i)
  TESSERA_MEMBERS(10, a, b, c, d, e, f, g, h, i, j)
  TESSERA_MEMBERS(11, a, b, c, d, e, f, g, h, i, j, k)
  TESSERA_MEMBERS(12, a, b, c, d, e, f, g, h, i, j, k, l)
  TESSERA_MEMBERS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  TESSERA_MEMBERS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
  TESSERA_MEMBERS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
  TESSERA_MEMBERS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
  TESSERA_MEMBERS(17, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q)
  TESSERA_MEMBERS(18, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r)
  TESSERA_MEMBERS(19, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s)
  TESSERA_MEMBERS(20, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t)
  TESSERA_MEMBERS(21, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u)
  TESSERA_MEMBERS(22, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v)
  TESSERA_MEMBERS(23, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w)
  TESSERA_MEMBERS(24, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x)
#undef TESSERA_MEMBERS
  // clang-format on
  if constexpr (count == 0 || count > 24) return std::tuple();
}

template <typename T>
struct NeverMade {
  T value;
  ~NeverMade() {}
};
template <typename T>
extern const NeverMade<T> kNeverMade;

template <auto pointer>
consteval std::string_view text_of_pointer() {
  return {static_cast<const char*>(__PRETTY_FUNCTION__)};
}

// Returns "width" from "… [with auto pointer = (& kNeverMade<mine::HParams>.…::width); …]".
template <auto pointer>
consteval std::string_view member_name() {
  std::string_view text = text_of_pointer<pointer>();
  text = text.substr(0, text.find_first_of(";]", text.find("pointer = ")));
  if (text.ends_with(')')) text.remove_suffix(1);
  return text.substr(text.find_last_of(":.") + 1);
}

template <typename T>
consteval std::string_view text_of_type() {
  return {static_cast<const char*>(__PRETTY_FUNCTION__)};
}

// Returns "Linear" from "… [with T = mine::Linear; …]".
template <typename T>
consteval std::string_view type_name() {
  std::string_view text = text_of_type<T>();
  text = text.substr(0, text.find_first_of(";]", text.find("T = ")));
  return text.substr(text.find_last_of(": ") + 1);
}

template <typename P, size_t i = 0>
consteval std::string_view first_unlisted() {
  constexpr auto pointers = pointers_to_members<arity<P>()>(kNeverMade<P>.value);
  if constexpr (i < std::tuple_size_v<decltype(pointers)>) {
    constexpr std::string_view name = member_name<std::get<i>(pointers)>();
    if constexpr (has_name(P::field_names(), name)) {
      return first_unlisted<P, i + 1>();
    } else {
      return name;
    }
  } else {
    return "one of its members";
  }
}

template <typename P>
consteval auto first_unlisted_name() {
  Name<first_unlisted<P>().size() + 1> name;
  for (size_t i = 0; i < first_unlisted<P>().size(); ++i) name.text[i] = first_unlisted<P>()[i];
  return name;
}

// The class that declares the FIELDS of a struct: the struct itself or a base.
template <typename P>
using FieldsOwner = std::remove_pointer_t<decltype(std::declval<const P&>().fields_owner())>;

// The first direct base that has FIELDS; void if no base has, or the compiler cannot list bases.
template <typename...>
struct FirstWithFields : std::type_identity<void> {};
template <typename First, typename... Rest>
struct FirstWithFields<First, Rest...>
    : std::conditional_t<HasFields<First>, std::type_identity<First>, FirstWithFields<Rest...>> {};
#if defined(__GNUC__) && !defined(__clang__)
template <typename... Bases>
FirstWithFields<Bases...> first_with_fields(std::tr2::__reflection_typelist<Bases...>*);
template <typename P>
using BaseWithFields = typename decltype(first_with_fields(
    static_cast<typename std::tr2::direct_bases<P>::type*>(nullptr)))::type;
#else
template <typename P>
using BaseWithFields = void;
#endif

template <typename P>
constexpr void check_base() {
  if constexpr (std::is_same_v<FieldsOwner<P>, P>) {
    using Direct = BaseWithFields<P>;
    if constexpr (!std::is_void_v<Direct>) {
      constexpr bool names_base = [] {
        if constexpr (requires { typename P::Base; })
          return std::is_same_v<typename P::Base, Direct>;
        else
          return false;
      }();
      if constexpr (!names_base) using_Base_is_missing<P, Direct>();
    }
  } else if constexpr (sizeof(P) != sizeof(FieldsOwner<P>)) {
    FIELDS_is_missing<P>();  // It has members of its own.
  } else if constexpr (requires { typename P::Base; }) {
    if constexpr (std::is_same_v<typename P::Base, FieldsOwner<P>>) FIELDS_is_missing<P>();
  }
}

template <typename P>
constexpr void check_fields() {
  if constexpr (!HasFields<P>) {
    FIELDS_is_missing<P>();
  } else if constexpr (!std::is_aggregate_v<P>) {
    check_base<P>();
  } else if constexpr (arity<P>() > count_names(P::field_names())) {
    member_is_not_in_FIELDS<P, first_unlisted_name<P>()>();
  } else if constexpr (arity<P>() < count_names(P::field_names())) {
    FIELDS_lists_more_names_than_members<P>();
  }
}

template <typename P>
consteval bool is_in_anonymous_namespace() {
  const std::string_view text = __PRETTY_FUNCTION__;
  return text.find("{anonymous}") != text.npos || text.find("(anonymous namespace)") != text.npos;
}

}  // namespace detail
}  // namespace tessera
