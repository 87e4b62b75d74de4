// SPDX-License-Identifier: Apache-2.0
// Memory planning: offsets in one arena for every value of a step, from liveness. Pure arithmetic;
// needs no device.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/step_plan.h"

namespace tessera {

// A block of memory that is used during [first, last].
struct PackedBlock {
  int64_t bytes = 0;
  int64_t first = 0, last = 0;  // Inclusive.
  int64_t offset = 0;           // Set by pack_arena().
};

inline constexpr int64_t kAlignment = 64;
inline int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Sets the offsets, multiples of kAlignment, so that blocks used at the same time do not overlap,
// and returns the size of the arena. Takes the better of two greedy heuristics.
int64_t pack_arena(std::vector<PackedBlock>& blocks);

// The most bytes in use at one time: a lower bound on the size of the arena.
int64_t max_live_bytes(const std::vector<PackedBlock>& blocks);

// `persistent` are inputs that another program has placed in the same arena; they keep their
// offsets. Error if their types differ.
StepPlan plan_memory(Graph lowered, const KernelFacts& facts,
                     const std::vector<Placement>& persistent = {},
                     Communication communication = Communication::kInline);

}  // namespace tessera
