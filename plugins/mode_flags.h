// SPDX-License-Identifier: Apache-2.0
// The flags of modes that have several of their own: replay, search, sweep, and calibrate --trace.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plugins/flags.h"
#include "tasks/calibrate/refit.h"
#include "tasks/config/search_space.h"
#include "tasks/hardware/hardware.h"
#include "tasks/replay/replay_options.h"
#include "tasks/search/search.h"

namespace tessera {

// The flags of --mode=sweep; docs/sweeps.md.
struct SweepFlags {
  std::vector<std::string> space;  // Of each --sweep.
  int64_t processes = 1;           // Trials that run at the same time.
  std::optional<int64_t> trials;
  std::optional<int64_t> seed;
  std::string metric;
  std::optional<SweepGoal> goal;
  bool retries_failed = false;
};

// Each is nullopt without its mode. Errors: a flag of the mode without it, a flag that the mode
// does not read, a missing one, an invalid value.
std::optional<ReplayOptions> parse_replay(const Flags& flags);  // --mode=replay
std::optional<SearchOptions> parse_search(const Flags& flags);  // --search; without its hardware.
std::optional<SweepFlags> parse_sweep(const Flags& flags);      // --mode=sweep

// nullopt without --trace, of --mode=calibrate (docs/launch_costs.md). `hardware`: that of
// --hardware. Error for a flag that the mode does not read, without --hardware, and if there is no
// such trace.
std::optional<RefitOptions> parse_refit(const Flags& flags,
                                        const std::optional<Hardware>& hardware);

// Error if there are more threads than this machine may need.
int parse_threads(const std::string& text);

// Those that --mode=calibrate without a trace reads, beside --mode.
const std::vector<std::string>& calibrate_flags();

}  // namespace tessera
