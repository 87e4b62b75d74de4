// SPDX-License-Identifier: Apache-2.0
// How far a sweep is, as one line: trials done, running and failed, the best one so far, and an
// estimate of the time left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tasks/sweep/trial_record.h"

namespace tessera {

// How long all trials that are not done or failed will take, `processes` of them at a time. A trial
// that has not started is expected to take as long as the others: the mean of those that this sweep
// has completed, or else what the running ones will take. nullopt while nothing is known.
std::optional<double> seconds_left(const SweepRecord& record, int64_t processes);

// "trials  3/12 done  2 running  1 failed  best 2.1034 (trial 4)  0:34 left"
std::string sweep_progress_text(const SweepRecord& record, int64_t processes);

}  // namespace tessera
