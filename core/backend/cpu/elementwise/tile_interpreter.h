// SPDX-License-Identifier: Apache-2.0
// Runs tile programs, with the widest vectors the processor has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/backend/cpu/elementwise/elementwise_program.h"
#include "core/backend/cpu/thread_pool.h"

namespace tessera {

// How an iteration space is cut into tiles: whole rows of the last dimension where several fit,
// else parts of one.
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
