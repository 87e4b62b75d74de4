// SPDX-License-Identifier: Apache-2.0
// The static parameters of a node: a small ordered map of printable, hashable values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/graph/type.h"

namespace tessera {

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<std::string>, Type>;

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Attribute>> entries)
      : entries_(entries) {}

  bool has(std::string_view name) const { return find(name) != nullptr; }
  void set(std::string_view name, Attribute value);

  // CHECKs that the attribute is there and of this kind; `get_or` gives `otherwise` if absent.
  template <typename T>
  const T& get(std::string_view name) const {
    const T* value = std::get_if<T>(&at(name));
    if (value == nullptr) wrong_kind(name);
    return *value;
  }
  template <typename T>
  T get_or(std::string_view name, T otherwise) const {
    return has(name) ? get<T>(name) : otherwise;
  }

  const std::vector<std::pair<std::string, Attribute>>& entries() const { return entries_; }
  std::string text() const;  // "axis=seq scale=0.5"
  bool operator==(const Attributes&) const = default;

 private:
  const Attribute* find(std::string_view name) const;
  const Attribute& at(std::string_view name) const;
  [[noreturn]] static void wrong_kind(std::string_view name);
  std::vector<std::pair<std::string, Attribute>> entries_;  // In order of setting.
};

}  // namespace tessera
