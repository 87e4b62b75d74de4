// SPDX-License-Identifier: Apache-2.0
// Maps this run's weights to those of another run to start from, by ordered rules of names. It
// matches names only.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// `pattern` (ECMAScript) must match a whole name of this run. `source` is the name in the other
// run, in which $1, $2, … are the pattern's groups and $0 is the whole match.
struct RemappingRule {
  std::string pattern;
  std::string source;
};

struct RemappingRules {
  std::vector<RemappingRule> rules;  // The first rule that matches is used.
  std::vector<std::string> ignore;  // Names that keep their initial values; checked before `rules`.
  bool safe = true;                 // A pattern that matches nothing is an Error.
};

struct NameMatch {
  std::string destination;
  std::string source;
};

// Returns the source of each of `destinations` that a rule matches, in order. Error if a source is
// not among `sources` (with the nearest), or if a pattern is not a regular expression.
std::vector<NameMatch> match_names(const std::vector<std::string>& destinations,
                                   const std::vector<std::string>& sources,
                                   const RemappingRules& rules);

}  // namespace tessera
