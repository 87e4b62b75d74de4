// SPDX-License-Identifier: Apache-2.0
// Regular expressions that match whole parameter paths: the masks and rules of the learner. Lists
// of paths in messages.
#pragma once

#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "layers/parameter.h"

namespace tessera {

class PathPatterns {
 public:
  // Error if one is not a regular expression; `field` names where they are configured.
  PathPatterns(const std::vector<std::string>& patterns, std::string_view field);
  bool empty() const { return patterns_.empty(); }
  bool match(std::string_view path) const;  // Whether any matches.
  // Error naming the nearest path for a pattern that matches no parameter.
  void check(const ParameterTable& table) const;

 private:
  std::string field_;
  std::vector<std::string> texts_;
  std::vector<std::regex> patterns_;
};

// Rules with the patterns of the weights to which each applies: at most one to a weight.
class PathRules {
 public:
  explicit PathRules(std::string_view field) : field_(field) {}
  void add(const std::vector<std::string>& patterns);       // Error for an empty list.
  std::optional<size_t> find(std::string_view path) const;  // The number of the rule.
  // Also Error that lists weights to which several rules apply.
  void check(const ParameterTable& table) const;

 private:
  std::string field_;
  std::vector<PathPatterns> rules_;
};

// "a, b, c and 5 more", for messages.
std::string few_names(const std::vector<std::string>& names);

}  // namespace tessera
