// SPDX-License-Identifier: Apache-2.0
// Averages over several datasets and sources under a name of their own, as Levanter's tags: over
// all labels alike (micro), and over members alike, however large (macro).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tasks/metric_means.h"

namespace tessera {

// Members by tag: "dataset" or "dataset/source".
using EvalTags = std::map<std::string, std::vector<std::string>>;

// Error for a tag that names what there is not (with the nearest name), names something twice, or
// nothing. `known`: all datasets, and the sources of each ("dataset/source").
void check_tags(const EvalTags& tags, const std::vector<std::string>& known);

inline constexpr const char* kMacroPrefix = "macro_";

// "<metric>" and "macro_<metric>" of one tag, for the names of reported_values. A member in which
// nothing was scored is left out of the macro average.
std::map<std::string, double> tag_values(const std::vector<MetricMeans>& members,
                                         const std::vector<std::string>& names);
std::vector<std::string> tag_names(const std::vector<std::string>& names);

}  // namespace tessera
