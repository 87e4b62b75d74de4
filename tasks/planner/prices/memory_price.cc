// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/prices/memory_price.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "tasks/planner/prices/launch_cost.h"

namespace tessera {
namespace {

// Kernels read more than their operands (halves of cache lines, partial sums): an estimate.
constexpr double kTraffic = 1.1;

}  // namespace

double reachable_bandwidth(const Hardware& hardware) {
  return hardware.efficiency.copies / kTraffic * hardware.memory.bandwidth;
}
double reachable_bandwidth(const Hardware& hardware, double bytes) {
  if (!hardware.memory.copies) return reachable_bandwidth(hardware);
  // Measured with kernels, so that their traffic is part of it.
  const std::vector<CopyPoint>& curve = *hardware.memory.copies;
  const auto after = std::ranges::find_if(
      curve, [&](const CopyPoint& point) { return to_double(point.bytes) >= bytes; });
  if (after == curve.begin()) return curve.front().bandwidth;
  if (after == curve.end()) return curve.back().bandwidth;
  const CopyPoint &low = *std::prev(after), &high = *after;
  const double part = std::log(bytes / to_double(low.bytes)) /
                      std::log(to_double(high.bytes) / to_double(low.bytes));
  return low.bandwidth * std::pow(high.bandwidth / low.bandwidth, part);
}

}  // namespace tessera
