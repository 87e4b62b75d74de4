// SPDX-License-Identifier: Apache-2.0
// A tile program computes an elementwise node, or the body of a fused node, a few hundred elements
// at a time, so that intermediate values stay in the first-level cache. elementwise.cc compiles
// programs; run_tiles() interprets them with the widest vectors that the processor has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/devices/cpu/thread_pool.h"
#include "core/devices/iteration_space.h"
#include "core/graph/op.h"

namespace tessera {

struct TileInstruction;

// Runs one instruction on `count` lanes of each slot. A lane has 32 bits: a float, an integer, or a
// truth value as the float 0 or 1.
using LaneLoop = void (*)(const TileInstruction& code, float* const* slots, int64_t count);

struct TileInstruction {
  LaneLoop loop = nullptr;
  const OpDef* op = nullptr;  // Null: a conversion.
  int32_t result = 0;         // Slots.
  int32_t a = 0, b = 0, c = 0;
};

// The loops of an elementwise op, by kind of its operands' lanes; null where it has none.
struct LaneLoops {
  LaneLoop floats = nullptr, integers = nullptr, truths = nullptr;
};

enum class Conversion { kRoundToBF16, kFloatToInt, kIntToFloat, kFloatToTruth, kIntToTruth };

// The lanes that a slot has at the start of each tile.
struct TileSource {
  enum class Kind {
    kInput,       // Input `index` of the node, addressed by `strides`.
    kConstant,    // The value `constant` everywhere.
    kCoordinate,  // The position on an axis, as an integer: `constant` plus index times `strides`.
  } kind = Kind::kInput;
  int32_t slot = 0;
  int32_t index = 0;
  DType dtype = DType::kF32;
  uint32_t constant = 0;  // The bits of the lane.
  Strides strides;
};

struct TileResult {
  int32_t slot = 0;
  DType dtype = DType::kF32;
  Strides strides;
  // Whether an instruction may write the output's memory directly: no input is read after it.
  bool in_place = false;
};

struct TileProgram {
  std::vector<int64_t> sizes;  // The collapsed iteration space.
  std::vector<TileSource> sources;
  std::vector<TileInstruction> instructions;
  std::vector<TileResult> results;
  int32_t slots = 0;
  double cost = 0.0;  // Cost of one element, in units of an addition.

  // The sizes of the last two dimensions; 1 where the space lacks them.
  int64_t columns() const { return sizes.empty() ? 1 : sizes.back(); }
  int64_t rows() const { return sizes.size() < 2 ? 1 : sizes[sizes.size() - 2]; }
};

// Return the loops of an elementwise op and of a conversion, for the vectors in use.
LaneLoops lane_loops(const OpDef& op);
LaneLoop conversion_loop(Conversion conversion);

// The division of an iteration space into tiles: several whole rows of the last dimension if they
// fit, otherwise parts of one row.
struct TileGrid {
  int64_t capacity = 0;  // Most elements of a tile.
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
