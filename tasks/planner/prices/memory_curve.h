// SPDX-License-Identifier: Apache-2.0
// The memory that a planned step uses at each of its launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/compile/memory/step_program.h"

namespace tessera {

struct MemoryAt {
  int64_t used = 0;  // Bytes of the arena that hold something, parameters and state included.
  int64_t gaps = 0;  // Bytes between those that do, up to the last one.
  // Bytes that the arena must have at this launch.
  int64_t bytes() const { return used + gaps; }
};

// Computes the memory at each launch of the plan. The largest number of bytes is the planned peak.
std::vector<MemoryAt> memory_curve(const StepProgram& step);

// Positions in the curve, for a drawing of at most `most` points, or the peak if that is 1. Where
// there are many launches, each point is the launch with most bytes among its neighbours, and among
// equal ones the first with the fewest gaps.
std::vector<size_t> fullest_launches(const std::vector<MemoryAt>& curve, size_t most);

}  // namespace tessera
