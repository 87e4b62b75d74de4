// SPDX-License-Identifier: Apache-2.0
#include "tasks/eval/eval_tags.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "tasks/eval/dataset_scores.h"

namespace tessera {
namespace {

// What is a mean of something; a count is not, and a perplexity follows from its log.
bool is_averaged(const std::string& name) { return name != "weight" && name != "perplexity"; }

void check_members(const std::vector<std::string>& members, const std::vector<std::string>& known) {
  if (members.empty()) fail("it names no dataset; give some of {}", fmt::join(known, ", "));
  for (size_t i = 0; i < members.size(); ++i) {
    const std::string& member = members[i];
    if (std::find(known.begin(), known.end(), member) == known.end())
      fail("there is no dataset '{}'{}; there are {}", member, did_you_mean(member, known),
           fmt::join(known, ", "));
    for (size_t j = 0; j < members.size(); ++j) {
      if (j != i && members[j] == member) fail("it names '{}' twice", member);
      if (member.starts_with(members[j] + "/"))
        fail("it names '{}' beside '{}', which holds it: its labels would count twice", member,
             members[j]);
    }
  }
}

}  // namespace

void check_tags(const EvalTags& tags, const std::vector<std::string>& known) {
  for (const auto& [tag, members] : tags) {
    const ErrorContext where("eval.tags." + tag);
    if (tag.empty() || tag.find('/') != std::string::npos)
      fail("'{}' is no name of a tag; expected one without '/'", tag);
    check_members(members, known);
  }
}

std::map<std::string, double> tag_values(const std::vector<MetricMeans>& members,
                                         const std::vector<std::string>& names) {
  MetricMeans micro;
  for (const MetricMeans& member : members) micro.add(member);
  std::map<std::string, double> values = reported_values(micro, names);
  for (const std::string& name : names) {
    if (!is_averaged(name)) continue;
    double sum = 0.0;
    int64_t count = 0;
    for (const MetricMeans& member : members) {
      const double value = reported_values(member, {name}).at(name);
      if (member.weight("loss") <= 0.0 || std::isnan(value)) continue;
      sum += value;
      ++count;
    }
    values[kMacroPrefix + name] =
        count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
  }
  return values;
}

std::vector<std::string> tag_names(const std::vector<std::string>& names) {
  std::vector<std::string> all = names;
  for (const std::string& name : names)
    if (is_averaged(name)) all.push_back(kMacroPrefix + name);
  return all;
}

}  // namespace tessera
