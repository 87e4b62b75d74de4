// SPDX-License-Identifier: Apache-2.0
// Declares HParams. FIELDS lists a struct's members once; dump, load, overrides, comparison
// and copies follow from it:
//
//   struct HParams {
//     using Instance = Linear;  // The configured class. TOML and --set use its name, or that of
//                               // static constexpr std::string_view kName = "mine.Linear";
//     Required<int64_t> output_dims;
//     bool use_bias = true;
//     FIELDS(output_dims, use_bias)
//   };
//
// Omitting a member from the list of an aggregate does not compile; the message names the member
// (fields_check.h). Members may be bool, int64_t, double, std::string, DType, enum classes
// (enum_names), structs with FIELDS, Template<Base>, and Field, std::vector, std::optional and
// std::map<std::string, …> of those. The fields of a member whose struct has
// `static constexpr bool kInlined = true` are inlined: no path and no file names the member itself.
//
// The range of a number and the meaning of a field are optional and stand in the list:
//
//   FIELDS(About(output_dims, kSize), use_bias,
//          About(timeout, "how long to wait for another process", {.unit = "s", .min = 1}),
//          About(dropout_rate, kRate))
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/hparams/fields_check.h"

#define FIELDS(...)                                                                   \
  template <typename Visitor>                                                         \
  void fields(Visitor&& visitor) {                                                    \
    using ::tessera::About;                                                           \
    ::tessera::detail::visit_named(visitor, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
  }                                                                                   \
  template <typename Visitor>                                                         \
  void fields(Visitor&& visitor) const {                                              \
    using ::tessera::About;                                                           \
    ::tessera::detail::visit_named(visitor, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__); \
  }                                                                                   \
  static constexpr std::string_view field_names() { return #__VA_ARGS__; }            \
  auto fields_owner() const->std::remove_cvref_t<decltype(*this)>*;

namespace tessera {

enum class Origin {
  kDefault,      // The default of the class.
  kInherited,    // Unset; taken from an enclosing HParams, whose path is `note`.
  kExperiment,   // Set by an experiment's code, at `site` if known.
  kFile,         // Read from the file named by `note`.
  kCommandLine,  // Set by --set; `note` is "path=value".
  kFlag,         // Set by the flag `note`: "--smoke".
};

// The origin of the value of a field.
struct Provenance {
  Origin origin = Origin::kDefault;
  SourceSite site;
  std::string note;

  std::string text() const {  // "experiments/c4/c4_spmd.cc:31", "inherited from task.model", …
    switch (origin) {
      case Origin::kDefault:
        return "default";
      case Origin::kInherited:
        return "inherited from " + note;
      case Origin::kExperiment:
        return site.known() ? site.text() : "experiment";
      case Origin::kFile:
      case Origin::kFlag:
        return note;
      case Origin::kCommandLine:
        return "--set " + note;
    }
    return "";
  }
};

// Returns the name of an enumerator in TOML, --set and messages.
template <typename E>
struct EnumName {
  E value;
  std::string_view name;
};

// DType has names of its own (core/base/dtype.h).
template <typename E>
concept NamedEnum =
    std::is_enum_v<E> && !std::is_convertible_v<E, int> && !std::is_same_v<E, DType>;

namespace detail {
// A value that no enumerator has is printed as (Labels)7.
template <typename E, size_t count = 0>
consteval size_t count_enumerators() {
  if constexpr (member_name<static_cast<E>(count)>().find(')') != std::string_view::npos) {
    return count;
  } else {
    return count_enumerators<E, count + 1>();
  }
}

// Returns "shift_right" for kShiftRight.
template <auto enumerator>
inline constexpr auto kWords = [] {
  constexpr std::string_view name = member_name<enumerator>();
  Name<2 * name.size()> words;
  char* end = words.text;
  for (const char c : name.substr(1)) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper && end != words.text) *end++ = '_';
    *end++ = is_upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return words;
}();
}  // namespace detail

// The names of an enum class whose values count from 0: Labels::kShiftRight is "shift_right". An
// enum with other names or values has a table beside it, in its namespace:
//
//   enum class Labels { kShiftRight, kNextToken };
//   constexpr std::array<EnumName<Labels>, 2> enum_names(Labels) {
//     return {{{Labels::kShiftRight, "shifted"}, {Labels::kNextToken, "next"}}};
//   }
template <NamedEnum E>
constexpr auto enum_names(E) {
  return []<size_t... i>(std::index_sequence<i...>) {
    return std::array<EnumName<E>, sizeof...(i)>{
        EnumName<E>{static_cast<E>(i), detail::kWords<static_cast<E>(i)>.text}...};
  }
  (std::make_index_sequence<detail::count_enumerators<E>()>());
}

// CHECKs that the table has the value.
template <NamedEnum E>
std::string_view enum_name(E value) {
  for (const auto& row : enum_names(value))
    if (row.value == value) return row.name;
  check_failed("the enumerator has a name", __FILE__, __LINE__,
               fmt::format("enumerator {}", static_cast<int64_t>(value)));
}

namespace detail {
template <typename From, typename To>
concept SetsField =
    std::is_convertible_v<From, To> && !std::is_same_v<std::remove_cvref_t<From>, AnyField> &&
    !(std::is_integral_v<To> && std::is_floating_point_v<std::decay_t<From>>);
}  // namespace detail

// A member that may be unset and remembers where it was set. An unset Field takes the value of the
// nearest enclosing HParams' Field of the same name and type.
template <typename T>
class Field {
 public:
  using Value = T;

  Field() = default;
  template <typename From>
  requires detail::SetsField<From, T> Field(
      From&& value, std::source_location where = std::source_location::current())
      : value_(static_cast<T>(std::forward<From>(value))),
        provenance_{Origin::kExperiment, SourceSite::current(where), {}} {}

  bool has() const { return value_.has_value(); }
  const T& get() const {  // Error if unset.
    if (!value_) fail("an unset field was read; set it, or read it with get_or(…)");
    return *value_;
  }
  T get_or(T otherwise) const { return value_.value_or(std::move(otherwise)); }

  const Provenance& provenance() const { return provenance_; }
  void set(T value, Provenance provenance) {
    value_ = std::move(value);
    provenance_ = std::move(provenance);
  }
  void reset() {
    value_.reset();
    provenance_ = {};
  }

 private:
  std::optional<T> value_;
  Provenance provenance_;
};

// A Field that must be set, or inherited, before anything is instantiated from its HParams.
template <typename T>
class Required : public Field<T> {
 public:
  using Field<T>::Field;
};

// Optional facts about a field beyond its type. The range is that of a number, or of each number in
// a list or map. Without one a real number must still be finite in f32, in which a step computes. A
// field that is unset has no number. check_values (tree.h) enforces it.
struct FieldInfo {
  std::string_view text{};  // Meaning, for --describe and messages: "share of … set to 0".
  std::string_view unit{};  // "s", "tokens"; not needed where the name says it.
  double min = -std::numeric_limits<double>::infinity();    // min <= value,
  double above = -std::numeric_limits<double>::infinity();  // above < value,
  double max = std::numeric_limits<double>::infinity();     // value <= max,
  double below = std::numeric_limits<double>::infinity();   // value < below,
  std::optional<double> also{};                             // or this one value: -1 for "all".

  bool allows(double value) const;
  std::string range() const;  // "at least 0 and below 1", "at least 1, or -1"; "" if it has none.
};

// Ranges that many fields have.
inline constexpr FieldInfo kSize{.min = 1, .max = 1 << 24};  // Size of an axis, or a count.
inline constexpr FieldInfo kPositive{.above = 0};
inline constexpr FieldInfo kNotNegative{.min = 0};
inline constexpr FieldInfo kShare{.min = 0, .max = 1};
inline constexpr FieldInfo kRate{.min = 0, .below = 1};  // Rate of dropout; decay of an average.

// A member in FIELDS with its facts.
template <typename Member>
struct About {
  About(Member& about_member, const FieldInfo& about_info)
      : member(about_member), info(about_info) {}
  About(Member& about_member, std::string_view text, const FieldInfo& about_info = {})
      : member(about_member), info(about_info) {
    info.text = text;
  }
  Member& member;
  FieldInfo info;
};

// Calls visitor(name, member, info) for every field in the order of FIELDS, after the fields of
// P::Base if the struct is derived. `info` is a const FieldInfo*, null for a field without About.
template <typename P, typename Visitor>
void visit_fields(P& p, Visitor&& visitor);

namespace detail {

// A struct whose fields are among those of the struct it is a member of.
template <typename T>
concept Inlined = T::kInlined;

template <typename Visitor, typename Member>
void visit_member(Visitor& visitor, std::string_view name, Member& member) {
  if constexpr (Inlined<std::remove_const_t<Member>>) {
    visit_fields(member, visitor);
  } else {
    visitor(name, member, static_cast<const FieldInfo*>(nullptr));
  }
}

template <typename Visitor, typename Member>
void visit_member(Visitor& visitor, std::string_view name, About<Member>& about) {
  visitor(name, about.member, &about.info);
}

template <typename Visitor, typename... Members>
void visit_named(Visitor& visitor, [[maybe_unused]] std::string_view names, Members&&... members) {
  (visit_member(visitor, take_name(names), members), ...);
}

template <typename From, typename To>
using WithConstOf = std::conditional_t<std::is_const_v<From>, const To, To>;

}  // namespace detail

template <typename P, typename Visitor>
void visit_fields(P& p, Visitor&& visitor) {
  using Plain = std::remove_const_t<P>;
  detail::check_fields<Plain>();
  if constexpr (requires { typename Plain::Base; })
    visit_fields(static_cast<detail::WithConstOf<P, typename Plain::Base>&>(p), visitor);
  p.fields(visitor);
}

}  // namespace tessera
