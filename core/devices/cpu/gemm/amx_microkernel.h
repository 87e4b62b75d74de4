// SPDX-License-Identifier: Apache-2.0
// The microkernel of AMX: 32 × 32 sums in four tiles, from two tiles of A and two tiles of B, which
// hold pairs of bf16. `Tiles` implements the tile instructions: those of the processor
// (microkernels.cc), or an emulation that tests this code on any machine
// (tests/support/emulated_tiles.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/devices/cpu/gemm/gemm_kernels.h"
#include "core/devices/cpu/reduction.h"

namespace tessera {

// Tile registers 0 to 3 hold sums, 4 and 5 rows of A, 6 and 7 columns of B.
template <class Tiles>
class AmxMicrokernel {
 public:
  explicit AmxMicrokernel(const PackedBlocks& blocks) : blocks_(blocks) {}

  void run() {
    Tiles::configure();
    const float* b = blocks_.b;
    for (int64_t column = 0; column < blocks_.n; column += kAmxPanel) {
      for (int64_t row = 0; row < blocks_.m; row += kAmxPanel) {
        blocks_.next_a->prefetch_for_tile();
        blocks_.next_b->prefetch_for_tile();
        multiply(blocks_.a + row * kRowWords, b, row, column);
      }
      b += blocks_.words * kAmxPanel;
    }
    Tiles::release();
  }

 private:
  // Computes one block of 32 × 32 sums; with at most 16 rows or columns, half of the tiles.
  void multiply(const float* a, const float* b, int64_t row, int64_t column) {
    const int64_t rows = std::min(kAmxPanel, blocks_.m - row);
    const int64_t columns = std::min(kAmxPanel, blocks_.n - column);
    begin(row, column, rows, columns);
    const bool two_rows = rows > kAmxTile, two_columns = columns > kAmxTile;
    for (int64_t word = 0; word < blocks_.words; word += kAmxTile) {
      Tiles::template load<4>(a + word, kRowWords * kWordBytes);
      Tiles::template load<6>(b + word * kAmxPanel, kAmxPanel * kWordBytes);
      Tiles::template multiply_add<0, 4, 6>();
      if (two_columns) {
        Tiles::template load<7>(b + word * kAmxPanel + kAmxTile, kAmxPanel * kWordBytes);
        Tiles::template multiply_add<1, 4, 7>();
      }
      if (two_rows) {
        Tiles::template load<5>(a + kAmxTile * kRowWords + word, kRowWords * kWordBytes);
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
    if (rows < kAmxPanel || columns < kAmxPanel) {
      for (int64_t i = 0; i < rows; ++i)
        std::copy_n(from + i * stride, columns, buffer_ + i * kAmxPanel);
      from = buffer_;
      stride = kAmxPanel;
    }
    Tiles::template load<0>(from, stride * kWordBytes);
    Tiles::template load<1>(from + kAmxTile, stride * kWordBytes);
    Tiles::template load<2>(from + kAmxTile * stride, stride * kWordBytes);
    Tiles::template load<3>(from + kAmxTile * stride + kAmxTile, stride * kWordBytes);
  }

  void end(int64_t row, int64_t column, int64_t rows, int64_t columns) {
    const bool rounded = blocks_.last && blocks_.out_is_bf16;
    const bool to_out = blocks_.last && !blocks_.out_is_bf16;
    const int64_t out = row * blocks_.out_stride + column;
    float* const to = to_out ? static_cast<float*>(blocks_.out) + out
                             : blocks_.sums + row * blocks_.sums_stride + column;
    const int64_t stride = to_out ? blocks_.out_stride : blocks_.sums_stride;
    const bool whole = rows == kAmxPanel && columns == kAmxPanel;
    if (whole && !rounded) return store(to, stride);
    store(buffer_, kAmxPanel);
    for (int64_t i = 0; i < rows; ++i) {
      if (rounded) {
        auto* const bytes = static_cast<std::byte*>(blocks_.out);
        store_sums(DType::kBF16, buffer_ + i * kAmxPanel, columns,
                   bytes + (out + i * blocks_.out_stride) * dtype_bytes(DType::kBF16));
      } else {
        std::copy_n(buffer_ + i * kAmxPanel, columns, to + i * stride);
      }
    }
  }

  static void store(float* to, int64_t stride) {
    Tiles::template store<0>(to, stride * kWordBytes);
    Tiles::template store<1>(to + kAmxTile, stride * kWordBytes);
    Tiles::template store<2>(to + kAmxTile * stride, stride * kWordBytes);
    Tiles::template store<3>(to + kAmxTile * stride + kAmxTile, stride * kWordBytes);
  }

  static constexpr int64_t kWordBytes = 4;

  const PackedBlocks& blocks_;
  alignas(64) float buffer_[kAmxPanel * kAmxPanel] = {};
};

template <class Tiles>
void amx_multiply(const PackedBlocks& blocks) {
  AmxMicrokernel<Tiles>(blocks).run();
}

}  // namespace tessera
