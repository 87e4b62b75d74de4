// SPDX-License-Identifier: Apache-2.0
// When gathers of weights start, from what launches take: as late as possible, but so early that no
// kernel waits for them. It is the schedule of XLA's latency-hiding scheduler with profile-guided
// latency estimation, for the gathers only: what else communicates starts when its operands are
// ready. Not what limits their memory (overlap.cc).
#pragma once

#include <cstddef>
#include <vector>

namespace tessera {

struct TimedGather {
  size_t first_use = 0;  // The position of the first launch that reads the result.
  double seconds = 0.0;  // Of the collectives that make it.
};

// Other collectives, which use the links at a time of their own.
struct LinkUse {
  size_t position = 0;
  double seconds = 0.0;
};

// The position of the launch before which each gather starts. `kernels`: the seconds of each launch
// of the program as a kernel, 0 of a collective. Gathers are in the order of their first uses, and
// run one after another in this order; `others` are in the order of the program. Times are of one
// device whose kernels never wait. Measured times vary, so gathers are planned to take half as long
// again.
std::vector<size_t> latest_starts(const std::vector<double>& kernels,
                                  const std::vector<TimedGather>& gathers,
                                  const std::vector<LinkUse>& others);

}  // namespace tessera
