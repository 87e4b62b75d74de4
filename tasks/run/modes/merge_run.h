// SPDX-License-Identifier: Apache-2.0
// --mode=merge: a new run whose step 0 has the average of the weights of several checkpoints of
// another run (Izmailov et al., 2018, arXiv 1803.05407; Wortsman et al., 2022, arXiv 2203.05482).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "tasks/run/run_setting.h"

namespace tessera {

struct MergeOptions {
  std::filesystem::path from;  // The other run's directory.
  std::vector<int64_t> steps;  // Which checkpoints; empty: the newest `last`.
  int64_t last = 0;
  std::vector<double> weights;  // A share for each step, in any unit; empty: equal.
};

// Error unless there are two checkpoints or more, and weights of this number with a positive sum.
std::unique_ptr<BaseRun> merge_run(const RunContext& context, const MergeOptions& options);

}  // namespace tessera
