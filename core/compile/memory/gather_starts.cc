// SPDX-License-Identifier: Apache-2.0
// Finds when gathers of weights start, from the times of launches: as late as possible, but so
// early that no kernel waits for them. It is the schedule of XLA's latency-hiding scheduler with
// profile-guided latency estimation, for the gathers only: other collectives start when their
// operands are ready. It does not limit their memory (overlap.cc does).
#include <algorithm>
#include <limits>

#include "core/compile/memory/launch_facts.h"

namespace tessera {
namespace {

constexpr double kReserve = 1.5;  // A gather is planned to take this many times its seconds.

struct Interval {
  double begin = 0.0, end = 0.0;
};

// Returns when the links are busy with other collectives, which run one after another.
std::vector<Interval> busy_links(const std::vector<double>& begins,
                                 const std::vector<TimedCollective>& others) {
  std::vector<Interval> busy;
  double free = 0.0;
  for (const TimedCollective& other : others) {
    const double begin = std::max(begins[other.position], free);
    free = begin + other.seconds;
    if (other.seconds > 0.0) busy.push_back({begin, free});
  }
  return busy;
}

// Returns when work of `seconds` on the links must begin to be done at `end`. Removes intervals
// that begin at that time or later from the end of `busy`.
double begin_of_work(std::vector<Interval>& busy, double end, double seconds) {
  for (double begin = end;;) {
    while (!busy.empty() && busy.back().begin >= begin) busy.pop_back();
    const double free =
        busy.empty() ? -std::numeric_limits<double>::infinity() : std::min(busy.back().end, begin);
    if (begin - free >= seconds) return begin - seconds;
    seconds -= begin - free;
    begin = busy.back().begin;
  }
}

}  // namespace

std::vector<size_t> latest_starts(const std::vector<double>& kernels,
                                  const std::vector<TimedGather>& gathers,
                                  const std::vector<TimedCollective>& others) {
  std::vector<double> begins = {0.0};
  for (const double seconds : kernels) begins.push_back(begins.back() + seconds);
  std::vector<Interval> busy = busy_links(begins, others);
  std::vector<size_t> positions(gathers.size(), 0);
  double next = std::numeric_limits<double>::infinity();  // Start of the next gather.
  for (size_t k = gathers.size(); k-- > 0;) {
    const double end = std::min(begins[gathers[k].first_use], next);
    next = begin_of_work(busy, end, kReserve * gathers[k].seconds);
    const auto after = std::ranges::upper_bound(begins, next);
    if (after != begins.begin()) positions[k] = static_cast<size_t>(after - begins.begin()) - 1;
  }
  return positions;
}

}  // namespace tessera
