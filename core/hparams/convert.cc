// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/convert.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <boost/core/demangle.hpp>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/hparams/text.h"

namespace tessera {
namespace {

bool encloses(std::string_view text, char open, char close) {
  return text.size() >= 2 && text.front() == open && text.back() == close;
}

// Removes underscores between digits (TOML allows them) and a leading "+".
std::string without_underscores(std::string_view text) {
  std::string digits;
  for (const char c : trimmed(text))
    if (c != '_') digits += c;
  if (!digits.empty() && digits.front() == '+') digits.erase(0, 1);
  return digits;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  const std::string digits = without_underscores(text);
  Number value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty())
    return std::nullopt;
  return value;
}

// Parses integers in exponent notation, if exact in a double.
std::optional<int64_t> whole_exponent(std::string_view text) {
  constexpr double kMostExact = 9007199254740992.0;  // 2^53
  if (text.find_first_of("eE") == std::string_view::npos) return std::nullopt;
  const std::optional<double> value = parse_number<double>(text);
  if (!value || !(std::abs(*value) <= kMostExact) || *value != std::trunc(*value))
    return std::nullopt;
  return static_cast<int64_t>(*value);
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  const std::optional<int64_t> value = parse_number<int64_t>(text);
  return value ? value : whole_exponent(text);
}

std::optional<double> parse_real(std::string_view text) { return parse_number<double>(text); }

void detail::add_field(Tree& tree, std::string_view name, Tree value, const FieldInfo* info,
                       const std::type_info& owner) {
  if (tree.find(name) != nullptr)
    fail(
        "{} has two fields called '{}': its own, and one of its base or of an inlined struct; "
        "rename its own, since --set and hparams.toml could not tell them apart",
        boost::core::demangle(owner.name()), name);
  if (info != nullptr) value.info = std::make_shared<const FieldInfo>(*info);
  tree.append(name, std::move(value));
}

void TreeReader::fail_type(std::string_view expected) const {
  fail("{}: got {}, expected {}", path.empty() ? "value" : path, shortened(tree.value_text()),
       expected);
}

bool TreeReader::to_bool() const {
  if (tree.kind == Tree::Kind::kBool) return tree.boolean;
  if (tree.kind == Tree::Kind::kText) {
    if (trimmed(tree.text) == "true") return true;
    if (trimmed(tree.text) == "false") return false;
  }
  fail_type("true or false");
}

int64_t TreeReader::to_int(int64_t lowest, int64_t highest) const {
  std::optional<int64_t> value;
  if (tree.kind == Tree::Kind::kInt) value = tree.integer;
  if (tree.kind == Tree::Kind::kText) value = parse_integer(tree.text);
  if (!value) fail_type("an integer");
  if (*value < lowest || *value > highest)
    fail_type(fmt::format("an integer from {} to {}", lowest, highest));
  return *value;
}

double TreeReader::to_double() const {
  if (tree.kind == Tree::Kind::kDouble) return tree.number;
  if (tree.kind == Tree::Kind::kInt) return static_cast<double>(tree.integer);
  if (tree.kind == Tree::Kind::kText)
    if (const auto value = parse_number<double>(tree.text)) return *value;
  fail_type("a number");
}

std::string TreeReader::to_string() const {
  if (tree.kind == Tree::Kind::kString) return tree.text;
  if (tree.kind == Tree::Kind::kText) {
    if (!encloses(tree.text, '"', '"') && !encloses(tree.text, '\'', '\'')) return tree.text;
    const Tree value = parse_toml_value(tree.text, tree.provenance);
    if (value.kind == Tree::Kind::kString) return value.text;
  }
  fail_type("text in quotes");
}

DType TreeReader::to_dtype() const {
  if (!tree.is_text()) fail_type("a dtype such as \"f32\" or \"bf16\"");
  const ErrorContext context(path);
  return parse_dtype(to_string());
}

size_t TreeReader::to_enumerator(const std::vector<std::string>& names) const {
  if (tree.is_text()) {
    const std::string name = to_string();
    const auto at = std::ranges::find(names, name);
    if (at != names.end()) return static_cast<size_t>(at - names.begin());
    fail("{}: got '{}', expected one of {}{}", path, shortened(name), fmt::join(names, ", "),
         did_you_mean(name, names));
  }
  fail_type(fmt::format("one of {}", fmt::join(names, ", ")));
}

bool TreeReader::unsets() const {
  if (tree.kind == Tree::Kind::kText) return trimmed(tree.text) == "unset";
  // TOML has no null: an empty table without a class represents it.
  const bool empty_table = tree.is_table() && tree.items.empty() && tree.class_name.empty();
  return !tree.is_set() || (empty_table && !tree.is_map);
}

Tree TreeReader::to_list() const {
  if (tree.is_list()) return tree;
  if (tree.kind != Tree::Kind::kText) fail_type("a list such as [1, 2]");
  std::string_view text = trimmed(tree.text);
  if (text.starts_with('[') && !encloses(text, '[', ']')) fail_type("a list that ends with ]");
  if (encloses(text, '[', ']')) text = text.substr(1, text.size() - 2);
  Tree list = Tree::list();
  const SplitText split = split_top_level(text, ',');
  for (const std::string_view part : split.parts)
    list.items.push_back(Tree::typed(part, tree.provenance));
  // TOML allows a comma after the last element.
  if (!list.items.empty() && list.items.back().text.empty()) list.items.pop_back();
  return list;
}

Tree TreeReader::to_table() const {
  if (tree.is_table()) return tree;
  if (!tree.is_text()) fail_type("a table such as {name = value}");
  std::string_view text = trimmed(tree.text);
  if (text.starts_with('{') && !encloses(text, '{', '}')) fail_type("a table that ends with }");
  if (encloses(text, '{', '}')) text = text.substr(1, text.size() - 2);
  Tree table = Tree::table();
  const SplitText split = split_top_level(text, ',');
  for (const std::string_view part : split.parts) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) fail_type("name=value, … or {name = value, …}");
    table.add(trimmed(part.substr(0, equals)),
              Tree::typed(trimmed(part.substr(equals + 1)), tree.provenance));
  }
  return table;
}

void TreeReader::reject_unknown(std::string_view class_name,
                                const std::vector<std::string>& fields) const {
  std::vector<std::string> paths;
  for (const std::string& field : fields) paths.push_back(join_path(path, field));
  for (const std::string& key : tree.keys) {
    if (std::ranges::find(fields, key) != fields.end()) continue;
    const std::string near = nearest(key, fields);
    fail("no field '{}' in {}{}", join_path(path, shortened(key)),
         class_name.empty() ? "this struct" : class_name,
         near.empty() ? fmt::format(" (it has {})", fmt::join(fields, ", "))
                      : fmt::format("; did you mean '{}'?", join_path(path, near)));
  }
}

template struct detail::Conversion<bool>;
template struct detail::Conversion<int64_t>;
template struct detail::Conversion<double>;
template struct detail::Conversion<std::string>;
template struct detail::Conversion<std::vector<int64_t>>;
template struct detail::Conversion<std::vector<double>>;
template struct detail::Conversion<std::vector<std::string>>;
template struct detail::Conversion<Field<bool>>;
template struct detail::Conversion<Field<int64_t>>;
template struct detail::Conversion<Field<double>>;
template struct detail::Conversion<Field<std::string>>;
template struct detail::Conversion<Field<DType>>;
template struct detail::Conversion<Required<int64_t>>;
template struct detail::Conversion<Required<std::string>>;
template struct detail::Conversion<std::optional<int64_t>>;
template struct detail::Conversion<std::optional<double>>;

}  // namespace tessera
