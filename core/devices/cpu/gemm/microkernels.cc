// SPDX-License-Identifier: Apache-2.0
// The microkernels of f32 and of bf16 pairs, and those of AMX for its processor. A tile of R rows
// by N vectors keeps its sums in registers over a whole block of k. Each word of k is a rank-1
// update: N vectors of B are loaded and each is multiplied by R broadcast words of A. The tile is
// as large as the registers allow, 12 × 2 of the 32 of AVX-512 and 6 × 2 of 16, so that the
// multipliers limit it and not the loads.
#include <array>

#include "core/devices/cpu/amx_tiles.h"
#include "core/devices/cpu/gemm/amx_microkernel.h"
#include "core/devices/cpu/gemm/gemm_kernels.h"
#include "core/devices/cpu/processor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/devices/cpu/gemm/microkernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/devices/cpu/gemm/packing-inl.h"
#include "core/devices/cpu/gemm/skinny_gemm-inl.h"

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

// Copies `rows` rows of `columns` sums to and from a buffer of whole vectors, with kPanelColumns
// from row to row.
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
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += lanes())
      Multiply::store_bf16(load(buffer + i * kPanelColumns + j), out + i * stride + j, columns - j);
}

// Multiplies R rows of the panel at `a` by N vectors of the panel at `b`, at (row, column) of C.
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
  for (int64_t word = 0; word < blocks.words; ++word) {
    Row<N> right;
    right.read(b);
    tile.template add<Multiply>(a, kRowMajor ? kRowWords : 1, right);
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

// Multiplies all rows of one panel: tiles of R rows, then smaller ones.
template <class Multiply, PackedOrder kOrder, int N, int R>
HWY_INLINE void multiply_rows(const PackedBlocks& blocks, const float* a, const float* b,
                              int64_t rows, int64_t row, int64_t column) {
  for (; rows >= R; rows -= R, row += R) {
    multiply_tile<Multiply, kOrder, R, N>(blocks, a, b, row, column);
    a += kOrder == PackedOrder::kRowMajor ? R * kRowWords : R;
  }
  if constexpr (R > 1) {
    constexpr int kNext = R == 12 ? 8 : R == 6 ? 4 : R / 2;
    if (rows > 0) multiply_rows<Multiply, kOrder, N, kNext>(blocks, a, b, rows, row, column);
  }
}

// Prefetches the sums or results of the next panel, at `row`.
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
    for (int64_t row = 0; row < blocks.m; row += kPanelRows, a += kPanelRows * kRowWords) {
      const int64_t rows = std::min(kPanelRows, blocks.m - row);
      if (row + kPanelRows < blocks.m) prefetch_rows(blocks, row + kPanelRows, column);
      blocks.next_a->prefetch_for_tile();
      blocks.next_b->prefetch_for_tile();
      if (narrow) {
        multiply_rows<Multiply, kOrder, 1, kPanelRows>(blocks, a, b, rows, row, column);
      } else {
        multiply_rows<Multiply, kOrder, kVectors, kPanelRows>(blocks, a, b, rows, row, column);
      }
    }
    b += blocks.words * kPanelColumns;
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

template <class Format, int64_t kMultiple>
void pack_a(const PackSource& source, float* to) {
  pack_rows<Format, kMultiple>(source, kRowWords, to);
}
template <class Format>
void pack_a_transposed(const PackSource& source, float* to) {
  pack_columns_to_panels<Format, kPanelRows, 1>(source, kPanelRows * kRowWords, to);
}
template <class Format, int64_t kWidth, int64_t kMultiple>
void pack_b(const PackSource& source, float* to) {
  const int64_t words = words_of(source.depth, Format::kDepth, kMultiple);
  pack_columns_to_panels<Format, kWidth, kMultiple>(source, words * kWidth, to);
}

template <class Format, class Multiply>
GemmKernels vector_kernels() {
  return {.rows = kPanelRows,
          .columns = kPanelColumns,
          .word_depth = Format::kDepth,
          .pack_a = pack_a<Format, 1>,
          .pack_b_transposed = pack_rows_to_panels<Format, kPanelColumns, 1>,
          .pack_a_transposed = pack_a_transposed<Format>,
          .pack_b = pack_b<Format, kPanelColumns, 1>,
          .multiply = multiply<Multiply>,
          .pack_skinny = pack_rows<Format, 1>,
          .multiply_skinny = multiply_skinny<Format, Multiply>};
}

GemmKernels VectorKernels(GemmPath path) {
  if (path == GemmPath::kF32) return vector_kernels<F32Format, MultiplyF32>();
  if (path == GemmPath::kWidenedBf16) return vector_kernels<WidenedBf16Format, MultiplyF32>();
#if HWY_TARGET <= HWY_AVX3
  return vector_kernels<Bf16PairFormat, MultiplyPairs>();
#else
  return {};
#endif
}

GemmKernels AmxPacking() {
  using Format = Bf16PairFormat;
  return {.rows = kAmxPanel,
          .columns = kAmxPanel,
          .word_depth = Format::kDepth,
          .word_multiple = kAmxTile,
          .pack_a = pack_a<Format, kAmxTile>,
          .pack_b_transposed = pack_rows_to_panels<Format, kAmxPanel, kAmxTile>,
          .pack_a_transposed = pack_columns_to_rows<Format, kAmxTile>,
          .pack_b = pack_b<Format, kAmxPanel, kAmxTile>,
          .transposed_a_order = PackedOrder::kRowMajor};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(VectorKernels);
HWY_EXPORT(AmxPacking);

// The tile instructions of AMX (Intel, "Architecture Instruction Set Extensions", chapter on AMX).
// Assembly, because the intrinsics exist only in functions compiled for AMX.
#if defined(__x86_64__)
struct AmxTiles {
  static void configure() { configure_tiles(); }
  static void release() { __asm__ volatile("tilerelease"); }

  template <int kTile>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void load(const float* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(stride), "i"(kTile)
                     : "memory");
  }
  template <int kTile>
  static void store(float* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(to), "r"(stride), "i"(kTile)
                     : "memory");
  }
  // Adds A·B of bf16 pairs to sums.
  template <int kSums, int kA, int kB>
  static void multiply_add() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};
#endif

GemmKernels make_kernels(GemmPath path) {
  cpu_level();  // Highway's first dispatch keeps the targets that it finds.
  if (path != GemmPath::kBf16Tiles) return HWY_DYNAMIC_DISPATCH(VectorKernels)(path);
  GemmKernels kernels = amx_packing();
#if defined(__x86_64__)
  kernels.multiply = amx_multiply<AmxTiles>;
#endif
  return kernels;
}

}  // namespace

GemmKernels amx_packing() {
  cpu_level();
  return HWY_DYNAMIC_DISPATCH(AmxPacking)();
}

const GemmKernels& gemm_kernels(GemmPath path) {
  static const std::array<GemmKernels, 4> kernels = {
      make_kernels(GemmPath::kF32), make_kernels(GemmPath::kWidenedBf16),
      make_kernels(GemmPath::kBf16Pairs), make_kernels(GemmPath::kBf16Tiles)};
  return kernels[static_cast<size_t>(path)];
}

}  // namespace tessera
#endif  // HWY_ONCE
