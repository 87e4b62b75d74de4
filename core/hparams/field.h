// SPDX-License-Identifier: Apache-2.0
// Field<T>: a member of HParams that may be unset and remembers where it was set. An unset Field
// takes the value of the nearest enclosing HParams' Field of the same name and type. Required<T> is
// a Field that must be set, or inherited, before anything is made from it.
#pragma once

#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>

#include "core/base/error.h"
#include "core/hparams/provenance.h"

namespace tessera {

namespace detail {
struct AnyField;  // Probes aggregates for their number of members; see fields.h.
[[noreturn]] void fail_unset();

template <typename From, typename To>
concept SetsField =
    std::is_convertible_v<From, To> && !std::is_same_v<std::remove_cvref_t<From>, AnyField> &&
    !(std::is_integral_v<To> && std::is_floating_point_v<std::decay_t<From>>);
}  // namespace detail

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
  const T& get() const {
    if (!value_) detail::fail_unset();
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

template <typename T>
class Required : public Field<T> {
 public:
  using Field<T>::Field;
};

}  // namespace tessera
