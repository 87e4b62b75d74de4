// SPDX-License-Identifier: Apache-2.0
// Runs tile programs, with the widest vectors the processor has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/backend/cpu/elementwise/tile_program.h"
#include "core/backend/cpu/thread_pool.h"

namespace tessera {

// The loops of an elementwise op and of a conversion, for the vectors in use.
LaneLoops lane_loops(const OpDef& op);
LaneLoop conversion_loop(Conversion conversion);

// How an iteration space is divided into tiles: several whole rows of the last dimension if they
// fit, else parts of one row.
struct TileGrid {
  int64_t capacity = 0;  // Elements of a tile, at most.
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t tiles = 0;
};
TileGrid make_tile_grid(const TileProgram& program);

// Runs tiles [range). `slots` holds program.slots * grid.capacity lanes of the calling thread.
void run_tiles(const TileProgram& program, const TileGrid& grid, Range range,
               std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
               float* slots);

}  // namespace tessera
