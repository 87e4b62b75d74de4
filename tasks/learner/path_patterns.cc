// SPDX-License-Identifier: Apache-2.0
#include "tasks/learner/path_patterns.h"

#include <algorithm>

#include "core/base/error.h"

namespace tessera {
namespace {

bool matches(const std::regex& pattern, std::string_view path) {
  return std::regex_match(path.begin(), path.end(), pattern);
}

}  // namespace

std::regex path_pattern(const std::string& pattern, std::string_view field) {
  try {
    return std::regex(pattern, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    fail("{}: '{}' is not a regular expression ({})", field, pattern, error.what());
  }
}

PathPatterns::PathPatterns(const std::vector<std::string>& patterns, std::string_view field)
    : field_(field), texts_(patterns) {
  for (const std::string& text : texts_) patterns_.push_back(path_pattern(text, field_));
}

bool PathPatterns::match(std::string_view path) const {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const std::regex& pattern) { return matches(pattern, path); });
}

void PathPatterns::check(const ParameterTable& table) const {
  std::vector<std::string> paths;
  for (const Parameter& each : table.parameters()) paths.push_back(each.path);
  for (size_t i = 0; i < patterns_.size(); ++i) {
    const bool used = std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
      return matches(patterns_[i], path);
    });
    if (!used)
      fail("{}: '{}' matches no parameter{}; it must match a whole path, such as '{}'", field_,
           texts_[i], did_you_mean(texts_[i], paths), paths.empty() ? "" : paths.front());
  }
}

}  // namespace tessera
