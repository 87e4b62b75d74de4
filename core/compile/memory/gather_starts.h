// SPDX-License-Identifier: Apache-2.0
// Finds when gathers of weights start, from the times of launches: as late as possible, but so
// early that no kernel waits for them. It is the schedule of XLA's latency-hiding scheduler with
// profile-guided latency estimation, for the gathers only: other collectives start when their
// operands are ready. It does not limit their memory (overlap.cc does).
#pragma once

#include <cstddef>
#include <vector>

namespace tessera {

struct TimedGather {
  size_t first_use = 0;  // The position of the first launch that reads the result.
  double seconds = 0.0;  // Time of the collectives that make it.
};

// Another collective, which uses the links at a fixed time.
struct TimedCollective {
  size_t position = 0;
  double seconds = 0.0;
};

// Returns the position of the launch before which each gather starts. `kernels`: the seconds of
// each launch of the program as a kernel, 0 for a collective. Gathers are in the order of their
// first uses, and run one after another in this order; `others` are in the order of the program.
// Times are of one device whose kernels never wait. Measured times vary, so each gather is planned
// to take 1.5 times as long.
std::vector<size_t> latest_starts(const std::vector<double>& kernels,
                                  const std::vector<TimedGather>& gathers,
                                  const std::vector<TimedCollective>& others);

}  // namespace tessera
