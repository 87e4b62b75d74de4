// SPDX-License-Identifier: Apache-2.0
#include "tasks/logging/log_gaps.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tasks/logging/jsonl_writer.h"

namespace tessera {
namespace {

constexpr size_t kMostRanges = 3;

// What lines say, in their order.
struct Written {
  std::set<int64_t> steps;               // Of training lines.
  std::map<int64_t, int64_t> intervals;  // From the step after this one on.
};

Written read_lines(std::string_view text, int64_t interval) {
  Written written;
  written.intervals[0] = interval;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const auto step = step_of_line(line);
    if (!step) continue;
    if (line.find("\"event\": \"start\"") != std::string_view::npos) {
      if (const auto given = number_of_line(line, "metrics_interval_steps"))
        written.intervals[*step] = *given;
    } else if (line.find("\"grad_norm\":") != std::string_view::npos) {
      written.steps.insert(*step);
    }
  }
  return written;
}

// "12", "31 to 50".
std::string range_text(int64_t first, int64_t last) {
  return first == last ? std::to_string(first) : fmt::format("{} to {}", first, last);
}

}  // namespace

std::string describe_log_gaps(std::string_view metrics, int64_t last_step, int64_t interval) {
  const Written written = read_lines(metrics, interval);
  std::vector<std::string> ranges;
  int64_t lost = 0, first = 0, last = 0;
  const auto close = [&] {
    if (first > 0) ranges.push_back(range_text(first, last));
    first = 0;
  };
  for (auto at = written.intervals.begin(); at != written.intervals.end(); ++at) {
    const auto next = std::next(at);
    const int64_t end = next == written.intervals.end() ? last_step : next->first;
    if (at->second <= 0) continue;
    int64_t step = at->first - at->first % at->second + at->second;
    for (; step <= std::min(end, last_step); step += at->second) {
      if (written.steps.contains(step)) {
        close();
        continue;
      }
      if (first == 0) first = step;
      last = step;
      ++lost;
    }
  }
  close();
  if (lost == 0) return "";
  const size_t more = ranges.size() - std::min(ranges.size(), kMostRanges);
  ranges.resize(std::min(ranges.size(), kMostRanges));
  return fmt::format(
      "metrics.jsonl has lost the lines of {} training step{} ({}{}); the run goes on without them",
      lost, lost == 1 ? "" : "s", fmt::join(ranges, ", "),
      more == 0 ? "" : fmt::format(" and {} more ranges", more));
}

}  // namespace tessera
