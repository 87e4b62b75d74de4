// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/space_text.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/hparams/convert.h"
#include "core/hparams/text.h"
#include "core/hparams/tree.h"
#include "core/io/file.h"
#include "tasks/sweep/trials.h"

namespace tessera {
namespace {

using Kind = SweepValues::Kind;

constexpr const char* kSpace = "space";

// The parts between commas that are in neither brackets nor quotes.
std::vector<std::string> split_values(std::string_view text) {
  const SplitText split = split_top_level(text, ',');
  if (split.open_quote != '\0') fail("a quote {} is not closed", split.open_quote);
  if (split.open_brackets != 0) fail("its brackets do not match");
  const bool has_empty =
      std::ranges::any_of(split.parts, [](std::string_view part) { return part.empty(); });
  if (split.parts.empty() || has_empty)
    fail(
        "a value is empty; give values between commas, such as 1e-3,3e-4 (an empty text is "
        "\"\")");
  return {split.parts.begin(), split.parts.end()};
}

// "1..3" gives 1, 2 and 3; any other text gives itself.
std::vector<std::string> expanded(const std::string& part) {
  const size_t dots = part.find("..");
  if (dots == std::string::npos) return {part};
  const auto first = parse_integer(part.substr(0, dots)),
             last = parse_integer(part.substr(dots + 2));
  if (!first || !last) return {part};
  if (*first > *last) fail("the range {} is empty; expected the lower number first", part);
  if (*last - *first >= kMostTrials)
    fail("the range {} has more than {} values", part, kMostTrials);
  std::vector<std::string> values;
  for (int64_t value = *first; value <= *last; ++value) values.push_back(std::to_string(value));
  return values;
}

SweepValues listed(const std::vector<std::string>& parts) {
  SweepValues values;
  for (const std::string& part : parts)
    for (std::string& value : expanded(part)) values.listed.push_back(std::move(value));
  return values;
}

double bound(const std::string& text) {
  return TreeReader{Tree::typed(text, {}), "a bound"}.to_double();
}

// Null if the text has no such function; listed texts may have parentheses of their own.
std::optional<SweepValues> parse_function(std::string_view text) {
  struct Function {
    std::string_view name;
    Kind kind;
  };
  constexpr std::array<Function, 4> kFunctions = {{{"uniform", Kind::kUniform},
                                                   {"log_uniform", Kind::kLogUniform},
                                                   {"uniform_integer", Kind::kUniformInteger},
                                                   {"choice", Kind::kListed}}};
  const size_t open = text.find('(');
  if (open == std::string_view::npos || !text.ends_with(')')) return std::nullopt;
  const std::string_view name = trimmed(text.substr(0, open));
  const auto found = std::ranges::find(kFunctions, name, &Function::name);
  if (found == kFunctions.end()) {
    std::vector<std::string> names;
    for (const Function& function : kFunctions) names.emplace_back(function.name);
    const std::string near = did_you_mean(name, names);
    if (!near.empty()) fail("there is no distribution '{}'{}", name, near);
    return std::nullopt;
  }
  const std::vector<std::string> arguments =
      split_values(text.substr(open + 1, text.size() - open - 2));
  if (found->kind == Kind::kListed) return listed(arguments);
  if (arguments.size() != 2)
    fail("{} takes two bounds, such as {}(1,8); got {}", name, name, arguments.size());
  SweepValues values;
  values.kind = found->kind;
  values.low = bound(arguments[0]);
  values.high = bound(arguments[1]);
  const bool whole = parse_integer(arguments[0]) && parse_integer(arguments[1]);
  if (found->kind == Kind::kUniformInteger && !whole)
    fail("{} takes whole numbers, got {} and {}", name, arguments[0], arguments[1]);
  return values;
}

SweepValues parse_values(std::string_view text) {
  const std::string_view plain = trimmed(text);
  if (plain.empty()) fail("there are no values; expected some, such as 1e-3,3e-4");
  if (auto values = parse_function(plain)) return *values;
  return listed(split_values(plain));
}

// A value of a list in TOML, as --set takes it.
std::string set_text(const Tree& tree) {
  return tree.kind == Tree::Kind::kString ? tree.text : tree.value_text();
}

// Dotted keys and subtables of [space] are one path.
void add_axes(const Tree& table, const std::string& path, std::vector<SweepAxis>& axes) {
  for (size_t i = 0; i < table.items.size(); ++i) {
    const Tree& item = table.items[i];
    const std::string name = path.empty() ? table.keys[i] : path + "." + table.keys[i];
    if (item.is_table()) {
      add_axes(item, name, axes);
      continue;
    }
    const ErrorPrefix where(fmt::format("{}: {}.{}", table.provenance.note, kSpace, name));
    SweepAxis axis{.path = name, .values = {}};
    if (item.is_list()) {
      for (const Tree& value : item.items) axis.values.listed.push_back(set_text(value));
    } else {
      axis.values = parse_values(set_text(item));
    }
    axes.push_back(std::move(axis));
  }
}

}  // namespace

SweepAxis parse_axis(std::string_view text) {
  const ErrorPrefix where(fmt::format("--sweep={}", text));
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    fail("expected PATH=VALUES, such as learning_rate=1e-3,3e-4, or a file, sweep.toml");
  return {std::string(trimmed(text.substr(0, equals))), parse_values(text.substr(equals + 1))};
}

Sweep read_sweep(const std::filesystem::path& file) {
  require_regular_file(file);
  const Tree tree = parse_toml(read_file(file), file.string());
  const ErrorPrefix where(file.string());
  TreeReader{tree, ""}.reject_unknown("a sweep", {"trials", "seed", "metric", "goal", kSpace});
  Sweep sweep;
  const auto read = [&tree](const char* key, auto& value) {
    if (const Tree* item = tree.find(key)) from_tree(TreeReader{*item, key}, value);
  };
  read("trials", sweep.num_trials);
  read("seed", sweep.seed);
  read("metric", sweep.metric);
  read("goal", sweep.goal);
  const Tree* space = tree.find(kSpace);
  if (space == nullptr || !space->is_table() || space->items.empty())
    fail(
        "expected a table [space] with a line for each knob or field, such as num_layers = [2, 4]");
  add_axes(*space, "", sweep.axes);
  return sweep;
}

Sweep parse_sweep(const std::vector<std::string>& given) {
  const auto is_axis = [](const std::string& text) { return text.find('=') != std::string::npos; };
  if (given.size() == 1 && !is_axis(given[0])) {
    if (!given[0].ends_with(".toml")) parse_axis(given[0]);  // Says what is expected.
    return read_sweep(given[0]);
  }
  Sweep sweep;
  for (const std::string& text : given) {
    if (!is_axis(text) && text.ends_with(".toml"))
      fail("--sweep={}: a file has the whole space; give no other --sweep", text);
    sweep.axes.push_back(parse_axis(text));
  }
  return sweep;
}

}  // namespace tessera
