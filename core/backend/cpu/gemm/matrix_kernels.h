// SPDX-License-Identifier: Apache-2.0
// The processor-specific half of matrix products: packing of blocks, and the multiplication of
// packed blocks by register tiles. matrix_product.cc cuts a product into blocks and calls these.
//
// Everything is stored in *units* of 32 bits along the contracted dimension k: one f32, or a pair
// of bf16 (k and k+1; zero where k is odd and at its end). A packed B is panels of `columns`
// columns, [unit][column] each. A packed A is panels of `rows` rows, either [row][unit] with
// kRowUnits units from row to row, or [unit][row]; which one follows from how A is stored.
//
// Every element of C is one chain of additions in the order of k, continued from block to block.
// So its bits depend on the path and on k, and on neither blocks, threads nor other rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

// Units of k in a block; a multiple of what an AMX tile holds (16).
inline constexpr int64_t kBlockUnits = 384;
// From row to row of a packed A. Twelve rows at this distance do not share a set of the L1 cache.
inline constexpr int64_t kRowUnits = kBlockUnits + 16;

// An AMX tile: 16 rows of 64 bytes, which are 16 sums in f32 or 16 units. A panel is two tiles.
inline constexpr int64_t kTileSize = 16;
inline constexpr int64_t kTilePanel = 2 * kTileSize;

enum class PackedOrder {
  kRowMajor,     // [row][unit]
  kColumnMajor,  // [unit][row]
};

// Lines are rows of A or columns of B. Either a line's elements are contiguous along k and
// `stride` is from line to line, or lines are contiguous and `stride` is from k to k + 1.
struct PackSource {
  const std::byte* data = nullptr;
  int64_t stride = 0;  // Elements.
  int64_t lines = 0;
  int64_t depth = 0;  // Elements along k.
};

// Memory that will be packed later: while tiles multiply, it is asked for a few cache lines at a
// time, so that packing does not wait for it.
class ReadAhead {
 public:
  ReadAhead() = default;
  // `rows` rows of `row_bytes` bytes, to be asked for within `tiles` calls.
  ReadAhead(const std::byte* data, int64_t rows, int64_t row_bytes, int64_t stride_bytes,
            int64_t tiles)
      : row_(data), rows_(rows), row_bytes_(row_bytes), stride_bytes_(stride_bytes) {
    const int64_t lines = rows * ((row_bytes + kLine - 1) / kLine);
    lines_a_tile_ = (lines + tiles - 1) / (tiles > 0 ? tiles : 1);
  }
  void for_a_tile() {
    for (int64_t i = 0; i < lines_a_tile_ && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + offset_, /*write=*/0, /*locality: second-level cache*/ 2);
      offset_ += kLine;
      if (offset_ < row_bytes_) continue;
      offset_ = 0;
      row_ += stride_bytes_;
      --rows_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const std::byte* row_ = nullptr;
  int64_t rows_ = 0, row_bytes_ = 0, stride_bytes_ = 0;
  int64_t offset_ = 0;  // In the row.
  int64_t lines_a_tile_ = 0;
};

// One block of A times one block of B, both packed.
struct PackedBlocks {
  const float* a = nullptr;
  PackedOrder a_order = PackedOrder::kRowMajor;
  const float* b = nullptr;
  int64_t m = 0, n = 0;
  int64_t units = 0;
  // Sums in f32 of the units before this block, unless it is the first; after it, unless last.
  float* sums = nullptr;
  int64_t sums_stride = 0;
  bool first = true, last = true;
  // The result, written by the last block.
  void* out = nullptr;
  int64_t out_stride = 0;
  bool out_is_bf16 = false;
  ReadAhead* next_a = nullptr;  // What will be packed next.
  ReadAhead* next_b = nullptr;
};

// A product of at most kFewRows rows with a B that is read from memory as it is.
inline constexpr int64_t kFewRows = 8;
struct FewRowsProduct {
  const float* a = nullptr;  // Units, row-major, a_stride from row to row.
  int64_t a_stride = 0;
  const void* b = nullptr;
  int64_t b_stride = 0;  // Elements from row to row, or, transposed, from column to column.
  bool b_transposed = false;
  int64_t m = 0, n = 0, k = 0;
  float* sums = nullptr;  // kStreamFloats of scratch.
  void* out = nullptr;
  int64_t out_stride = 0;
  bool out_is_bf16 = false;
};
// Sums that stay in the first-level cache while B streams by, and with what lies between their
// rows.
inline constexpr int64_t kStreamSums = 4096;
inline constexpr int64_t kStreamFloats = kStreamSums + kFewRows * 16;

struct ProductKernels {
  int64_t rows = 0, columns = 0;  // Of a panel.
  int64_t unit_depth = 1;         // Elements of k in a unit.
  int64_t unit_multiple = 1;      // Packed units are padded with zeros to a multiple of this.

  // Operands whose lines are contiguous along k. A becomes kRowMajor.
  void (*pack_a_rows)(const PackSource& source, float* to) = nullptr;
  void (*pack_b_columns)(const PackSource& source, float* to) = nullptr;
  // Operands with contiguous lines. A becomes kColumnMajor, with AMX kRowMajor.
  void (*pack_a_transposed)(const PackSource& source, float* to) = nullptr;
  void (*pack_b_rows)(const PackSource& source, float* to) = nullptr;
  PackedOrder transposed_order = PackedOrder::kColumnMajor;

  void (*multiply)(const PackedBlocks& blocks) = nullptr;
  // Null if few rows are multiplied as many are. Packs rows of A `line_units` apart.
  void (*pack_few_rows)(const PackSource& source, int64_t line_units, float* to) = nullptr;
  void (*multiply_few_rows)(const FewRowsProduct& product) = nullptr;
};

const ProductKernels& f32_kernels();
const ProductKernels& widened_bf16_kernels();  // bf16 in memory, multiplied as f32.
const ProductKernels& bf16_pair_kernels();     // vdpbf16ps; level avx512_bf16.
const ProductKernels& bf16_tile_kernels();     // tdpbf16ps; level amx.

// The packing of bf16_tile_kernels(), which any processor can run; `multiply` is null.
ProductKernels tile_packing();

}  // namespace tessera
