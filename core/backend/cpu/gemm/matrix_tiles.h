// SPDX-License-Identifier: Apache-2.0
// Products of packed bf16 pairs by AMX tiles: 32 × 32 sums in four tiles, fed by two tiles of A and
// two of B. `Tiles` is the tile instructions: the processor's (matrix_tiles.cc), or an emulation of
// them (tests/support/emulated_tiles.h), by which this code is tested on any machine.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/backend/cpu/gemm/matrix_kernels.h"
#include "core/backend/cpu/norm/reduce_rows.h"
#include "core/base/dtype.h"

namespace tessera {

// Tile registers 0 to 3 hold sums, 4 and 5 rows of A, 6 and 7 columns of B.
template <class Tiles>
class TileProduct {
 public:
  explicit TileProduct(const PackedBlocks& blocks) : blocks_(blocks) {}

  void run() {
    Tiles::configure();
    const float* b = blocks_.b;
    for (int64_t column = 0; column < blocks_.n; column += kTilePanel) {
      for (int64_t row = 0; row < blocks_.m; row += kTilePanel) {
        blocks_.next_a->for_a_tile();
        blocks_.next_b->for_a_tile();
        multiply(blocks_.a + row * kRowUnits, b, row, column);
      }
      b += blocks_.units * kTilePanel;
    }
    Tiles::release();
  }

 private:
  // One block of 32 × 32 sums, or of 16 rows or columns if it has no more.
  void multiply(const float* a, const float* b, int64_t row, int64_t column) {
    const int64_t rows = std::min(kTilePanel, blocks_.m - row);
    const int64_t columns = std::min(kTilePanel, blocks_.n - column);
    begin(row, column, rows, columns);
    const bool two_rows = rows > kTileSize, two_columns = columns > kTileSize;
    for (int64_t unit = 0; unit < blocks_.units; unit += kTileSize) {
      Tiles::template load<4>(a + unit, kRowUnits * kUnitBytes);
      Tiles::template load<6>(b + unit * kTilePanel, kTilePanel * kUnitBytes);
      Tiles::template multiply_add<0, 4, 6>();
      if (two_columns) {
        Tiles::template load<7>(b + unit * kTilePanel + kTileSize, kTilePanel * kUnitBytes);
        Tiles::template multiply_add<1, 4, 7>();
      }
      if (two_rows) {
        Tiles::template load<5>(a + kTileSize * kRowUnits + unit, kRowUnits * kUnitBytes);
        Tiles::template multiply_add<2, 5, 6>();
        if (two_columns) Tiles::template multiply_add<3, 5, 7>();
      }
    }
    end(row, column, rows, columns);
  }

  void begin(int64_t row, int64_t column, int64_t rows, int64_t columns) {
    if (blocks_.first) {
      Tiles::template zero<0>();
      Tiles::template zero<1>();
      Tiles::template zero<2>();
      Tiles::template zero<3>();
      return;
    }
    const float* from = blocks_.sums + row * blocks_.sums_stride + column;
    int64_t stride = blocks_.sums_stride;
    if (rows < kTilePanel || columns < kTilePanel) {
      for (int64_t i = 0; i < rows; ++i)
        std::copy_n(from + i * stride, columns, buffer_ + i * kTilePanel);
      from = buffer_;
      stride = kTilePanel;
    }
    Tiles::template load<0>(from, stride * kUnitBytes);
    Tiles::template load<1>(from + kTileSize, stride * kUnitBytes);
    Tiles::template load<2>(from + kTileSize * stride, stride * kUnitBytes);
    Tiles::template load<3>(from + kTileSize * stride + kTileSize, stride * kUnitBytes);
  }

  void end(int64_t row, int64_t column, int64_t rows, int64_t columns) {
    const bool rounded = blocks_.last && blocks_.out_is_bf16;
    const bool to_out = blocks_.last && !blocks_.out_is_bf16;
    const int64_t out = row * blocks_.out_stride + column;
    float* const to = to_out ? static_cast<float*>(blocks_.out) + out
                             : blocks_.sums + row * blocks_.sums_stride + column;
    const int64_t stride = to_out ? blocks_.out_stride : blocks_.sums_stride;
    const bool whole = rows == kTilePanel && columns == kTilePanel;
    if (whole && !rounded) return store(to, stride);
    store(buffer_, kTilePanel);
    for (int64_t i = 0; i < rows; ++i) {
      if (rounded) {
        auto* const bytes = static_cast<std::byte*>(blocks_.out);
        store_sums(DType::kBF16, buffer_ + i * kTilePanel, columns,
                   bytes + (out + i * blocks_.out_stride) * dtype_bytes(DType::kBF16));
      } else {
        std::copy_n(buffer_ + i * kTilePanel, columns, to + i * stride);
      }
    }
  }

  static void store(float* to, int64_t stride) {
    Tiles::template store<0>(to, stride * kUnitBytes);
    Tiles::template store<1>(to + kTileSize, stride * kUnitBytes);
    Tiles::template store<2>(to + kTileSize * stride, stride * kUnitBytes);
    Tiles::template store<3>(to + kTileSize * stride + kTileSize, stride * kUnitBytes);
  }

  static constexpr int64_t kUnitBytes = 4;

  const PackedBlocks& blocks_;
  alignas(64) float buffer_[kTilePanel * kTilePanel] = {};
};

template <class Tiles>
void multiply_by_tiles(const PackedBlocks& blocks) {
  TileProduct<Tiles>(blocks).run();
}

}  // namespace tessera
