// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/path_patterns.h"

#include <algorithm>
#include <ranges>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

bool matches(const std::regex& pattern, std::string_view path) {
  return std::regex_match(path.begin(), path.end(), pattern);
}

}  // namespace

PathPatterns::PathPatterns(const std::vector<std::string>& patterns, std::string_view field)
    : field_(field), texts_(patterns) {
  for (const std::string& text : texts_) {
    try {
      patterns_.emplace_back(text, std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error& error) {
      fail("{}: '{}' is not a regular expression ({})", field_, text, error.what());
    }
  }
}

bool PathPatterns::match(std::string_view path) const {
  return std::ranges::any_of(patterns_, [&](const auto& each) { return matches(each, path); });
}

void PathPatterns::check(const ParameterTable& table) const {
  std::vector<std::string> paths;
  for (const Parameter& each : table.parameters()) paths.push_back(each.path);
  for (size_t i = 0; i < patterns_.size(); ++i)
    if (std::ranges::none_of(paths, [&](const auto& path) { return matches(patterns_[i], path); }))
      fail("{}: '{}' matches no parameter{}; it must match a whole path, such as '{}'", field_,
           texts_[i], did_you_mean(texts_[i], paths), paths.empty() ? "" : paths.front());
}

void PathRules::add(const std::vector<std::string>& patterns) {
  const std::string paths = fmt::format("{}[{}].paths", field_, rules_.size());
  if (patterns.empty())
    fail("{} is empty; give regular expressions that match whole paths of weights", paths);
  rules_.emplace_back(patterns, paths);
}

std::optional<size_t> PathRules::find(std::string_view path) const {
  for (size_t i = 0; i < rules_.size(); ++i)
    if (rules_[i].match(path)) return i;
  return std::nullopt;
}

void PathRules::check(const ParameterTable& table) const {
  std::vector<std::string> ambiguous;
  size_t first = 0, second = 0;  // The rules of the first such weight.
  for (const PathPatterns& each : rules_) each.check(table);
  for (const Parameter& each : table.parameters())
    for (size_t i = find(each.path).value_or(rules_.size()) + 1; i < rules_.size(); ++i) {
      if (!rules_[i].match(each.path)) continue;
      if (ambiguous.empty()) first = *find(each.path), second = i;
      ambiguous.push_back(each.path);
      break;
    }
  if (!ambiguous.empty())
    fail(
        "{0}: more than one rule matches {1}; at most one may match a weight: change "
        "{0}[{2}].paths "
        "or {0}[{3}].paths",
        field_, few_names(ambiguous), first, second);
}

std::string few_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  const std::string text = fmt::format("{}", fmt::join(names | std::views::take(kShown), ", "));
  return names.size() <= kShown ? text : fmt::format("{} and {} more", text, names.size() - kShown);
}

}  // namespace tessera
