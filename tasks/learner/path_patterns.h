// SPDX-License-Identifier: Apache-2.0
// Regular expressions over parameter paths, for masks and load rules. They match whole paths; one
// that matches nothing is an Error.
#pragma once

#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "layers/parameter.h"

namespace tessera {

// Error if `pattern` is not a regular expression; `field` names where it is configured.
std::regex path_pattern(const std::string& pattern, std::string_view field);

class PathPatterns {
 public:
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

}  // namespace tessera
