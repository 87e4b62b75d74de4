// SPDX-License-Identifier: Apache-2.0
// Register tiles of f32 and of bf16 pairs. A tile of R rows by N vectors keeps its sums in
// registers over a whole block of k: for each unit it loads N vectors of B and multiplies each by R
// broadcast units of A. Sizes fill the registers: 12 × 2 of AVX-512's 32, 6 × 2 of the 16 of
// others, which leaves the loads of A and B well below the rate of the multipliers.
#include "core/backend/cpu/gemm/matrix_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/gemm/matrix_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/gemm/matrix_pack-inl.h"
#include "core/backend/cpu/gemm/matrix_stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET <= HWY_AVX3
constexpr int64_t kPanelRows = 12;
#else
constexpr int64_t kPanelRows = 6;
#endif
constexpr int kVectors = 2;
constexpr int64_t kPanelColumns = kVectors * static_cast<int64_t>(HWY_LANES(float));

// `rows` rows of `columns` sums, kPanelColumns apart in `buffer`.
HWY_NOINLINE void gather_sums(const float* sums, int64_t stride, int64_t rows, int64_t columns,
                              float* buffer) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += lanes())
      store(load(sums + i * stride + j, columns - j), buffer + i * kPanelColumns + j);
}
HWY_NOINLINE void scatter_sums(const float* buffer, int64_t rows, int64_t columns, float* sums,
                               int64_t stride) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += lanes())
      store(load(buffer + i * kPanelColumns + j), sums + i * stride + j, columns - j);
}
template <class Multiply>
HWY_NOINLINE void round_sums(const float* buffer, int64_t rows, int64_t columns, BFloat16* out,
                             int64_t stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; j += lanes()) {
      Multiply::store_bf16(load(buffer + i * kPanelColumns + j), out + i * stride + j, columns - j);
    }
  }
}

// R rows of the panel at `a` by N vectors of the panel at `b`; row and column are C's.
template <class Multiply, PackedOrder kOrder, int R, int N>
HWY_NOINLINE void multiply_tile(const PackedBlocks& blocks, const float* a, const float* b,
                                int64_t row, int64_t column) {
  HWY_ALIGN float buffer[R * kPanelColumns];
  const int64_t columns = std::min<int64_t>(blocks.n - column, N * lanes());
  const bool whole = columns == N * lanes();
  float* const sums = blocks.sums + row * blocks.sums_stride + column;
  Tile<R, N> tile;
  if (blocks.first) {
    tile.clear();
  } else if (whole) {
    tile.read(sums, blocks.sums_stride);
  } else {
    gather_sums(sums, blocks.sums_stride, R, columns, buffer);
    tile.read(buffer, kPanelColumns);
  }
  constexpr bool kRowMajor = kOrder == PackedOrder::kRowMajor;
  for (int64_t unit = 0; unit < blocks.units; ++unit) {
    Row<N> right;
    right.read(b);
    tile.template add<Multiply>(a, kRowMajor ? kRowUnits : 1, right);
    a += kRowMajor ? 1 : kPanelRows;
    b += kPanelColumns;
  }
  const int64_t out = row * blocks.out_stride + column;
  const bool to_out = blocks.last && !blocks.out_is_bf16;
  float* const to = to_out ? static_cast<float*>(blocks.out) + out : sums;
  const int64_t stride = to_out ? blocks.out_stride : blocks.sums_stride;
  const bool rounded = blocks.last && blocks.out_is_bf16;
  if (whole && !rounded) return tile.write(to, stride);
  tile.write(buffer, kPanelColumns);
  if (rounded) {
    round_sums<Multiply>(buffer, R, columns, static_cast<BFloat16*>(blocks.out) + out,
                         blocks.out_stride);
  } else {
    scatter_sums(buffer, R, columns, to, stride);
  }
}

// The rows of one panel, in tiles of R rows, then of fewer.
template <class Multiply, PackedOrder kOrder, int N, int R>
HWY_INLINE void multiply_rows(const PackedBlocks& blocks, const float* a, const float* b,
                              int64_t rows, int64_t row, int64_t column) {
  for (; rows >= R; rows -= R, row += R) {
    multiply_tile<Multiply, kOrder, R, N>(blocks, a, b, row, column);
    a += kOrder == PackedOrder::kRowMajor ? R * kRowUnits : R;
  }
  if constexpr (R > 1) {
    constexpr int kNext = R == 12 ? 8 : R == 6 ? 4 : R / 2;
    if (rows > 0) multiply_rows<Multiply, kOrder, N, kNext>(blocks, a, b, rows, row, column);
  }
}

// Asks for the memory of sums or results of the rows from `row` on, which a tile will need soon.
HWY_INLINE void prefetch_rows(const PackedBlocks& blocks, int64_t row, int64_t column) {
  const bool to_out = blocks.last && !blocks.out_is_bf16;
  const auto* const from = to_out ? static_cast<const float*>(blocks.out) : blocks.sums;
  const int64_t stride = to_out ? blocks.out_stride : blocks.sums_stride;
  const int64_t rows = std::min(kPanelRows, blocks.m - row);
  for (int64_t i = 0; i < rows; ++i) {
    const float* const at = from + (row + i) * stride + column;
    for (int64_t j = 0; j < kPanelColumns; j += 16) __builtin_prefetch(at + j, 1, 3);
  }
}

template <class Multiply, PackedOrder kOrder>
void multiply_panels(const PackedBlocks& blocks) {
  const float* b = blocks.b;
  for (int64_t column = 0; column < blocks.n; column += kPanelColumns) {
    const bool narrow = blocks.n - column <= lanes();
    const float* a = blocks.a;
    for (int64_t row = 0; row < blocks.m; row += kPanelRows, a += kPanelRows * kRowUnits) {
      const int64_t rows = std::min(kPanelRows, blocks.m - row);
      if (row + kPanelRows < blocks.m) prefetch_rows(blocks, row + kPanelRows, column);
      blocks.next_a->for_a_tile();
      blocks.next_b->for_a_tile();
      if (narrow) {
        multiply_rows<Multiply, kOrder, 1, kPanelRows>(blocks, a, b, rows, row, column);
      } else {
        multiply_rows<Multiply, kOrder, kVectors, kPanelRows>(blocks, a, b, rows, row, column);
      }
    }
    b += blocks.units * kPanelColumns;
  }
}

template <class Multiply>
void multiply(const PackedBlocks& blocks) {
  if (blocks.a_order == PackedOrder::kRowMajor) {
    multiply_panels<Multiply, PackedOrder::kRowMajor>(blocks);
  } else {
    multiply_panels<Multiply, PackedOrder::kColumnMajor>(blocks);
  }
}

template <class Units>
void pack_a_rows(const PackSource& source, float* to) {
  pack_line_major<Units, 1>(source, kRowUnits, to);
}
template <class Units>
void pack_a_transposed(const PackSource& source, float* to) {
  pack_across<Units, kPanelRows, 1>(source, kPanelRows * kRowUnits, to);
}
template <class Units>
void pack_b_columns(const PackSource& source, float* to) {
  pack_turned<Units, kPanelColumns, 1>(source, to);
}
template <class Units>
void pack_b_rows(const PackSource& source, float* to) {
  const int64_t units = units_of(source.depth, Units::kDepth, 1);
  pack_across<Units, kPanelColumns, 1>(source, units * kPanelColumns, to);
}

template <class Units, class Multiply>
ProductKernels kernels() {
  return {.rows = kPanelRows,
          .columns = kPanelColumns,
          .unit_depth = Units::kDepth,
          .pack_a_rows = pack_a_rows<Units>,
          .pack_b_columns = pack_b_columns<Units>,
          .pack_a_transposed = pack_a_transposed<Units>,
          .pack_b_rows = pack_b_rows<Units>,
          .multiply = multiply<Multiply>,
          .pack_few_rows = pack_line_major<Units, 1>,
          .multiply_few_rows = multiply_few_rows<Units, Multiply>};
}

ProductKernels TilePacking() {
  return {
      .rows = kTilePanel,
      .columns = kTilePanel,
      .unit_depth = PairUnits::kDepth,
      .unit_multiple = kTileSize,
      .pack_a_rows = [](const PackSource& source, float* to)
                         HWY_ATTR { pack_line_major<PairUnits, kTileSize>(source, kRowUnits, to); },
      .pack_b_columns = pack_turned<PairUnits, kTilePanel, kTileSize>,
      .pack_a_transposed = pack_across_turned<PairUnits, kTileSize>,
      .pack_b_rows =
          [](const PackSource& source, float* to) HWY_ATTR {
            const int64_t units = units_of(source.depth, PairUnits::kDepth, kTileSize);
            pack_across<PairUnits, kTilePanel, kTileSize>(source, units * kTilePanel, to);
          },
      .transposed_order = PackedOrder::kRowMajor};
}

ProductKernels F32Kernels() { return kernels<F32Units, MultiplyF32>(); }
ProductKernels WidenedKernels() { return kernels<WidenedUnits, MultiplyF32>(); }
#if HWY_TARGET <= HWY_AVX3
ProductKernels PairKernels() { return kernels<PairUnits, MultiplyPairs>(); }
#else
ProductKernels PairKernels() { return {}; }
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(F32Kernels);
HWY_EXPORT(WidenedKernels);
HWY_EXPORT(PairKernels);
HWY_EXPORT(TilePacking);
}  // namespace

const ProductKernels& f32_kernels() {
  static const ProductKernels kernels = HWY_DYNAMIC_DISPATCH(F32Kernels)();
  return kernels;
}

const ProductKernels& widened_bf16_kernels() {
  static const ProductKernels kernels = HWY_DYNAMIC_DISPATCH(WidenedKernels)();
  return kernels;
}

const ProductKernels& bf16_pair_kernels() {
  static const ProductKernels kernels = HWY_DYNAMIC_DISPATCH(PairKernels)();
  return kernels;
}

ProductKernels tile_packing() { return HWY_DYNAMIC_DISPATCH(TilePacking)(); }

}  // namespace tessera
#endif  // HWY_ONCE
