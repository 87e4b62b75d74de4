// SPDX-License-Identifier: Apache-2.0
// The interpreter of tile programs, one tile at a time: loads sources into slots of lanes (or reads
// them in place if they have that form), runs each instruction over all lanes, stores the results.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "core/devices/cpu/elementwise/tile_program.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/devices/cpu/elementwise/tile_interpreter.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/base/error.h"
#include "core/base/region.h"
#include "core/devices/cpu/elementwise/lane_functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

// Loads one row of `count` elements into lanes.
void load_row(DType dtype, const std::byte* base, int64_t offset, int64_t stride, int64_t count,
              float* to) {
  const auto load_as = [&](const auto* from) HWY_ATTR {
    from += offset;
    if (stride == 0) {
      std::fill_n(to, count, static_cast<float>(*from));
    } else if (stride == 1) {
      for (int64_t i = 0; i < count; i += lanes())
        store(load(from + i, count - i), to + i, count - i);
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i * stride]);
    }
  };
  if (dtype == DType::kBool) {
    for (int64_t i = 0; i < count; ++i)
      to[i] = base[offset + i * stride] != std::byte{0} ? 1.0f : 0.0f;
  } else if (dtype == DType::kBF16) {
    load_as(reinterpret_cast<const BFloat16*>(base));
  } else {
    CHECK(dtype == DType::kF32 || dtype == DType::kI32, "no lanes for {}", dtype_name(dtype));
    load_as(reinterpret_cast<const float*>(base));
  }
}

void store_row(DType dtype, std::byte* base, int64_t offset, int64_t stride, int64_t count,
               const float* from) {
  const auto store_as = [&](auto* to) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(to)>;
    to += offset;
    if (stride == 1) {
      for (int64_t i = 0; i < count; i += lanes())
        store(load(from + i, count - i), to + i, count - i);
    } else {
      for (int64_t i = 0; i < count; ++i) to[i * stride] = T(from[i]);
    }
  };
  if (dtype == DType::kBool) {
    for (int64_t i = 0; i < count; ++i) base[offset + i * stride] = std::byte{from[i] != 0.0f};
  } else if (dtype == DType::kBF16) {
    store_as(reinterpret_cast<BFloat16*>(base));
  } else {
    CHECK(dtype == DType::kF32 || dtype == DType::kI32, "no lanes for {}", dtype_name(dtype));
    store_as(reinterpret_cast<float*>(base));
  }
}

int64_t column_stride(const Strides& strides) { return strides.empty() ? 0 : strides.back(); }
int64_t row_stride(const Strides& strides) {
  return strides.size() < 2 ? 0 : strides[strides.size() - 2];
}
bool everywhere_same(const Strides& strides) {
  return std::ranges::all_of(strides, [](int64_t stride) { return stride == 0; });
}
// Returns whether the elements of a tile are contiguous.
bool adjacent(const Strides& strides, const TileGrid& grid) {
  if (column_stride(strides) != 1 && grid.columns != 1) return false;
  return grid.rows == 1 || row_stride(strides) == grid.columns;
}

void fill_coordinates(const Strides& strides, int64_t first, int64_t rows, int64_t columns,
                      float* lanes) {
  const int64_t by_row = row_stride(strides), by_column = column_stride(strides);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const auto value = static_cast<int32_t>(first + r * by_row + c * by_column);
      lanes[r * columns + c] = std::bit_cast<float>(value);
    }
  }
}

}  // namespace

void run_tiles_on_target(const TileProgram& program, const TileGrid& grid, Range range,
                         std::span<const std::byte* const> inputs,
                         std::span<std::byte* const> outputs, float* memory) {
  const size_t rank = program.sizes.size();
  const int64_t columns = program.columns(), rows = program.rows();
  const int64_t column_tiles = (columns + grid.columns - 1) / grid.columns;
  const int64_t row_tiles = (rows + grid.rows - 1) / grid.rows;

  // A fixed bound keeps this off the heap; the fusion pass keeps programs below it.
  constexpr size_t kMostSlots = 256, kMostRank = 16;
  CHECK(program.slots <= static_cast<int32_t>(kMostSlots) && rank <= kMostRank);
  float* home[kMostSlots];
  float* slots[kMostSlots];
  for (size_t s = 0; s < static_cast<size_t>(program.slots); ++s)
    home[s] = slots[s] = memory + static_cast<int64_t>(s) * grid.capacity;
  for (const TileSource& source : program.sources) {
    float* const lanes = home[source.slot];
    if (source.kind == TileSource::Kind::kConstant) {
      std::fill_n(lanes, grid.capacity, std::bit_cast<float>(source.constant));
    } else if (source.kind == TileSource::Kind::kInput && everywhere_same(source.strides)) {
      load_row(source.dtype, inputs[static_cast<size_t>(source.index)], 0, 0, grid.capacity, lanes);
    }
  }

  int64_t position[kMostRank] = {};
  const auto offset = [&](const Strides& strides) {
    int64_t sum = 0;
    for (size_t d = 0; d < strides.size(); ++d) sum += strides[d] * position[d];
    return sum;
  };
  for (int64_t tile = range.begin; tile < range.end; ++tile) {
    int64_t rest = tile;
    int64_t tile_columns = 1, tile_rows = 1;
    if (rank > 0) {
      position[rank - 1] = rest % column_tiles * grid.columns;
      rest /= column_tiles;
      tile_columns = std::min(grid.columns, columns - position[rank - 1]);
    }
    if (rank > 1) {
      position[rank - 2] = rest % row_tiles * grid.rows;
      rest /= row_tiles;
      tile_rows = std::min(grid.rows, rows - position[rank - 2]);
    }
    for (size_t d = rank; d-- > 2;) {
      position[d - 2] = rest % program.sizes[d - 2];
      rest /= program.sizes[d - 2];
    }
    const int64_t count = tile_rows * tile_columns;

    for (const TileSource& source : program.sources) {
      float* const lanes = home[source.slot];
      if (source.kind == TileSource::Kind::kConstant) continue;
      const int64_t first = offset(source.strides);
      if (source.kind == TileSource::Kind::kCoordinate) {
        fill_coordinates(source.strides, int64_t{source.constant} + first, tile_rows, tile_columns,
                         lanes);
        continue;
      }
      if (everywhere_same(source.strides)) continue;
      const std::byte* const base = inputs[static_cast<size_t>(source.index)];
      if (adjacent(source.strides, grid)) {
        if (source.dtype == DType::kF32 || source.dtype == DType::kI32) {
          // Never written: results have slots of their own.
          slots[source.slot] = const_cast<float*>(reinterpret_cast<const float*>(base)) + first;
        } else {
          load_row(source.dtype, base, first, 1, count, lanes);
        }
        continue;
      }
      for (int64_t r = 0; r < tile_rows; ++r)
        load_row(source.dtype, base, first + r * row_stride(source.strides),
                 column_stride(source.strides), tile_columns, lanes + r * tile_columns);
    }

    for (size_t i = 0; i < program.results.size(); ++i) {
      const TileResult& result = program.results[i];
      const bool plain = result.dtype == DType::kF32 || result.dtype == DType::kI32;
      if (result.in_place && plain && adjacent(result.strides, grid))
        slots[result.slot] = reinterpret_cast<float*>(outputs[i]) + offset(result.strides);
    }
    for (const TileInstruction& code : program.instructions) code.loop(code, slots, count);

    for (size_t i = 0; i < program.results.size(); ++i) {
      const TileResult& result = program.results[i];
      const int64_t first = offset(result.strides);
      const float* const lanes = slots[result.slot];
      // Computed in place. A narrower result is not, even if the addresses are equal.
      const bool in_place = dtype_bytes(result.dtype) == static_cast<int64_t>(sizeof(float)) &&
                            lanes == reinterpret_cast<const float*>(outputs[i]) + first;
      if (in_place) continue;
      if (adjacent(result.strides, grid)) {
        store_row(result.dtype, outputs[i], first, 1, count, lanes);
        continue;
      }
      for (int64_t r = 0; r < tile_rows; ++r)
        store_row(result.dtype, outputs[i], first + r * row_stride(result.strides),
                  column_stride(result.strides), tile_columns, lanes + r * tile_columns);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(run_tiles_on_target);
HWY_EXPORT(lane_loops_on_target);
HWY_EXPORT(conversion_loop_on_target);

namespace {

// Runs an op without vector code. Missing operands of an instruction repeat the first.
void run_scalar(const TileInstruction& code, float* const* slots, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double x[] = {slots[code.a][i], slots[code.b][i], slots[code.c][i]};
    slots[code.result][i] = static_cast<float>(code.op->element.apply(x));
  }
}

}  // namespace

LaneLoops lane_loops(const OpDef& op) {
  if (const LaneLoops* loops = HWY_DYNAMIC_DISPATCH(lane_loops_on_target)(op)) return *loops;
  if (op.element.apply == nullptr) return {};
  const bool on_truths = op.element.operands[0] == Domain::kBool;
  return {.floats = run_scalar, .truths = on_truths ? run_scalar : nullptr};
}

LaneLoop conversion_loop(Conversion conversion) {
  return HWY_DYNAMIC_DISPATCH(conversion_loop_on_target)(conversion);
}

TileGrid make_tile_grid(const TileProgram& program) {
  // All slots together fit well inside the first-level cache.
  constexpr int64_t kBytes = 24 * 1024;
  const int64_t room = kBytes / 4 / std::max<int32_t>(1, program.slots);
  TileGrid grid;
  grid.capacity = std::clamp<int64_t>(room / 64 * 64, 128, 1024);
  const int64_t columns = program.columns(), rows = program.rows();
  grid.columns = std::min(columns, grid.capacity);
  grid.rows = columns <= grid.capacity ? std::clamp<int64_t>(grid.capacity / columns, 1, rows) : 1;
  grid.tiles = element_count(program.sizes) / (rows * columns) *
               ((rows + grid.rows - 1) / grid.rows) * ((columns + grid.columns - 1) / grid.columns);
  return grid;
}

void run_tiles(const TileProgram& program, const TileGrid& grid, Range range,
               std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
               float* slots) {
  HWY_DYNAMIC_DISPATCH(run_tiles_on_target)(program, grid, range, inputs, outputs, slots);
}

}  // namespace tessera
#endif  // HWY_ONCE
