// SPDX-License-Identifier: Apache-2.0
// The memory that each launch of a program reads and writes, from which its dependencies follow.
#pragma once

#include <cstdint>
#include <span>

#include "core/compile/memory/flat_program.h"

namespace tessera {

inline bool overlaps(FlatValue a, FlatValue b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// The memory of a launch, by root buffers.
struct Footprint {
  std::span<const FlatValue> reads, writes;
  BufferId scratch;
  uint64_t buffers = 0;  // Bit set of buffers, modulo 64: most pairs of launches share none.
};

// Returns whether `later` depends on `earlier`.
bool depends(const Footprint& later, const Footprint& earlier);

// Finds root buffers once, since all pairs of launches are compared. Only operands have footprints.
class Footprints {
 public:
  explicit Footprints(const FlatProgram& program);
  const Footprint& operator[](LaunchId launch) const { return footprints_[launch]; }

 private:
  FlatValues roots_;
  IndexedVector<LaunchId, Footprint> footprints_;
};

}  // namespace tessera
