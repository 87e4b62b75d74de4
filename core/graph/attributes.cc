// SPDX-License-Identifier: Apache-2.0
#include "core/graph/attributes.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

std::string value_text(const Attribute& attribute) {
  struct Printer {
    std::string operator()(int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const { return fmt::format("{}", value); }
    std::string operator()(const std::string& value) const { return value; }
    std::string operator()(const std::vector<int64_t>& value) const {
      return fmt::format("[{}]", fmt::join(value, " "));
    }
    std::string operator()(const std::vector<std::string>& value) const {
      return fmt::format("[{}]", fmt::join(value, " "));
    }
    std::string operator()(const Type& value) const { return value.text_sized(); }
  };
  return std::visit(Printer{}, attribute);
}

}  // namespace

const Attribute* Attributes::find(std::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (key == name) return &value;
  }
  return nullptr;
}

const Attribute& Attributes::at(std::string_view name) const {
  const Attribute* value = find(name);
  CHECK(value != nullptr, "no attribute '{}'", name);
  return *value;
}

void Attributes::wrong_kind(std::string_view name) {
  check_failed("attribute of the kind asked for", __FILE__, __LINE__, std::string(name));
}

void Attributes::set(std::string_view name, Attribute value) {
  for (auto& [key, present] : entries_) {
    if (key == name) {
      present = std::move(value);
      return;
    }
  }
  entries_.emplace_back(std::string(name), std::move(value));
}

std::string Attributes::text() const {
  std::string text;
  for (const auto& [key, value] : entries_) {
    if (!text.empty()) text += ' ';
    text += fmt::format("{}={}", key, value_text(value));
  }
  return text;
}

}  // namespace tessera
