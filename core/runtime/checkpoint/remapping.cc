// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/checkpoint/remapping.h"

#include <algorithm>
#include <optional>
#include <regex>

#include "core/base/error.h"

namespace tessera {
namespace {

class Pattern {
 public:
  explicit Pattern(const std::string& text) : text_(text) {
    try {
      regex_ = std::regex(text);
    } catch (const std::regex_error& error) {
      fail("load rule '{}' is not a regular expression: {}", text, error.what());
    }
  }

  // Returns `format` with the groups of the match; nullopt if `name` does not match.
  std::optional<std::string> apply(const std::string& name, const std::string& format) {
    std::smatch match;
    if (!std::regex_match(name, match, regex_)) return std::nullopt;
    used_ = true;
    return match.format(format);
  }
  bool used() const { return used_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::regex regex_;
  bool used_ = false;
};

void check_used(const std::vector<Pattern>& patterns, const std::vector<std::string>& names) {
  for (const Pattern& pattern : patterns)
    if (!pattern.used())
      fail("load rule '{}' matches no parameter{}; set safe_load=false if that is intended",
           pattern.text(), did_you_mean(pattern.text(), names));
}

}  // namespace

std::vector<NameMatch> match_names(const std::vector<std::string>& destinations,
                                   const std::vector<std::string>& sources,
                                   const RemappingRules& rules) {
  std::vector<Pattern> patterns;
  for (const RemappingRule& rule : rules.rules) patterns.emplace_back(rule.pattern);
  std::vector<Pattern> ignored;
  for (const std::string& text : rules.ignore) ignored.emplace_back(text);

  std::vector<NameMatch> matches;
  for (const std::string& name : destinations) {
    if (std::ranges::any_of(ignored,
                            [&](Pattern& pattern) { return pattern.apply(name, "").has_value(); }))
      continue;
    for (size_t i = 0; i < patterns.size(); ++i) {
      const auto source = patterns[i].apply(name, rules.rules[i].source);
      if (!source) continue;
      if (std::ranges::find(sources, *source) == sources.end())
        fail("load rule '{}' takes '{}' from '{}', which the other run does not have{}",
             patterns[i].text(), name, *source, did_you_mean(*source, sources));
      matches.push_back({name, *source});
      break;
    }
  }
  if (rules.safe) {
    check_used(patterns, destinations);
    check_used(ignored, destinations);
  }
  return matches;
}

}  // namespace tessera
