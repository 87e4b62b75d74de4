// SPDX-License-Identifier: Apache-2.0
// The multi-threaded part of a build. Work is divided into units. One thread at a time reads a
// unit, any thread tokenises its batches, and batches are written in the order in which they were
// read.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "inputs/flat_tokens/build_inputs.h"
#include "inputs/flat_tokens/build_journal.h"

namespace tessera {

struct BuildStatus {
  int64_t bytes = 0;  // On disk, read and tokenised.
  int64_t total_bytes = 0;
  int64_t bytes_before = 0;  // Done by an earlier process; included in `bytes`.
  int64_t tokens = 0;
  double seconds = 0.0;
};

// Called about ten times a second; `status` returns the status.
using BuildTick = std::function<void(const std::function<BuildStatus()>& status)>;

// Does what the journal has not recorded. Error if the first relevant unit failed. Returns the
// progress of the units in the output, in order; the last may have extra tokens.
std::vector<UnitProgress> run_build_work(const TokenBuild& build, BuildJournal* journal,
                                         const BuildTick& on_tick);

}  // namespace tessera
