// SPDX-License-Identifier: Apache-2.0
// Packing intervals of memory: blocks that live at the same time get disjoint addresses.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct PackedBlock {
  int64_t bytes = 0;
  int64_t first = 0, last = 0;  // The moments at which it lives, inclusive.
  int64_t offset = 0;           // Set by pack().
};

inline constexpr int64_t kAlignment = 64;
inline int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Sets every offset (a multiple of kAlignment, from 0) and returns the bytes in all.
int64_t pack(std::vector<PackedBlock>& blocks);

// The most bytes that live at one moment: what no packing can beat.
int64_t most_alive(const std::vector<PackedBlock>& blocks);

}  // namespace tessera
