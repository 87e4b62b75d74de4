// SPDX-License-Identifier: Apache-2.0
// How candidates compare: by a goal, and in time and memory.
#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "tasks/search/search.h"

namespace tessera {
namespace {

constexpr double kHour = 3600.0;

}  // namespace

const PlannedCandidate& SearchResult::best_candidate() const {
  CHECK(best.has_value(), "no candidate fits");
  return candidates[*best];
}

double score(SearchGoal goal, const Hardware& hardware, int64_t devices, double seconds,
             int64_t bytes) {
  switch (goal) {
    case SearchGoal::kTime:
      return seconds;
    case SearchGoal::kCost:
      return static_cast<double>(devices) * seconds * hardware.price_per_hour.value_or(1.0) / kHour;
    case SearchGoal::kMemory:
      return static_cast<double>(bytes);
  }
  return 0.0;
}

std::vector<size_t> frontier_of(const std::vector<PlannedCandidate>& candidates, int64_t memory) {
  std::vector<size_t> fitting, frontier;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].is_planned() && candidates[i].bytes <= memory) fitting.push_back(i);
  std::ranges::stable_sort(
      fitting, {}, [&](size_t i) { return std::pair(candidates[i].seconds, candidates[i].bytes); });
  for (const size_t i : fitting)
    if (frontier.empty() || candidates[i].bytes < candidates[frontier.back()].bytes)
      frontier.push_back(i);
  return frontier;
}

}  // namespace tessera
