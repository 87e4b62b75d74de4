// SPDX-License-Identifier: Apache-2.0
// Which weights of another run to start from: ordered rules from names here to names there. It
// matches names only; reading them is checkpoint.h.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// `pattern` (ECMAScript) must match a whole name here; `source` is the name there and may hold $1,
// $2, … for the pattern's groups and $0 for all of it.
struct NameRule {
  std::string pattern;
  std::string source;
};

struct NameRules {
  std::vector<NameRule> rules;      // The first that matches counts.
  std::vector<std::string> ignore;  // Names that stay as initialised here, whatever `rules` say.
  bool safe = true;                 // A pattern that matches nothing is an Error.
};

struct NameMatch {
  std::string destination;
  std::string source;
};

// For each of `destinations` that a rule matches, in their order, its source. Error if a source is
// not among `sources` (with the nearest), or a pattern is no regular expression.
std::vector<NameMatch> match_names(const std::vector<std::string>& destinations,
                                   const std::vector<std::string>& sources, const NameRules& rules);

}  // namespace tessera
