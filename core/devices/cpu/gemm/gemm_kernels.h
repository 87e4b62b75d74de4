// SPDX-License-Identifier: Apache-2.0
// The processor-specific half of GEMM: packing, and the microkernels that multiply packed blocks.
// gemm.cc divides a product into blocks and calls them (BLIS: Van Zee and van de Geijn, 2015).
//
// Operands are packed in *words* of 32 bits along the contracted dimension k: one f32, or a pair of
// bf16 (k and k + 1, zero beyond the end of k), which is what vdpbf16ps and AMX read. A packed B is
// panels of `columns` columns, [word][column] each. A packed A is panels of `rows` rows, either
// [row][word] with kRowWords words from row to row, or [word][row], depending on how A is stored.
//
// Every element of C is one chain of additions in the order of k, continued from block to block. So
// its bits depend on the path and on k, and not on block sizes, threads or the other rows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

// Words of k in a block; a multiple of the words in a row of an AMX tile (16).
inline constexpr int64_t kBlockWords = 384;
// Words from row to row of a packed A. At this distance 12 rows do not share a set of the L1 cache.
inline constexpr int64_t kRowWords = kBlockWords + 16;

// An AMX tile has 16 rows of 64 bytes: 16 sums in f32, or 16 words. A panel is two tiles wide.
inline constexpr int64_t kAmxTile = 16;
inline constexpr int64_t kAmxPanel = 2 * kAmxTile;

enum class PackedOrder {
  kRowMajor,     // [row][word]
  kColumnMajor,  // [word][row]
};

// A block of an operand in memory. Both operands have the same description, as `rows` rows along k:
// the rows of A, or the columns of B. Stored row-major, `stride` is from row to row; stored
// column-major, it is from k to k + 1.
struct PackSource {
  const std::byte* data = nullptr;
  int64_t stride = 0;  // Elements.
  int64_t rows = 0;
  int64_t depth = 0;  // Elements along k.
};

// Prefetches memory that will be packed next, a few cache lines for each register tile, so that
// packing does not wait for it.
class Prefetcher {
 public:
  Prefetcher() = default;
  // Prefetches `rows` runs of `row_bytes` bytes, spread over `tiles` calls.
  Prefetcher(const std::byte* data, int64_t rows, int64_t row_bytes, int64_t stride_bytes,
             int64_t tiles)
      : row_(data), rows_(rows), row_bytes_(row_bytes), stride_bytes_(stride_bytes) {
    const int64_t lines = rows * ((row_bytes + kLine - 1) / kLine);
    lines_per_tile_ = (lines + tiles - 1) / (tiles > 0 ? tiles : 1);
  }
  void prefetch_for_tile() {
    for (int64_t i = 0; i < lines_per_tile_ && rows_ > 0; ++i) {
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
  int64_t lines_per_tile_ = 0;
};

// The product of one packed block of A and one packed block of B.
struct PackedBlocks {
  const float* a = nullptr;
  PackedOrder a_order = PackedOrder::kRowMajor;
  const float* b = nullptr;
  int64_t m = 0, n = 0;
  int64_t words = 0;
  // Sums in f32 over the blocks of k so far. The first block does not read them, the last one does
  // not write them.
  float* sums = nullptr;
  int64_t sums_stride = 0;
  bool first = true, last = true;
  // The result, written by the last block.
  void* out = nullptr;
  int64_t out_stride = 0;
  bool out_is_bf16 = false;
  Prefetcher* next_a = nullptr;  // The blocks that will be packed next.
  Prefetcher* next_b = nullptr;
};

// A product of at most kSkinnyRows rows with a B that is read in place, without packing.
inline constexpr int64_t kSkinnyRows = 8;
struct SkinnyGemm {
  const float* a = nullptr;  // Words, row-major.
  int64_t a_stride = 0;
  const void* b = nullptr;
  int64_t b_stride = 0;  // Elements from row to row; of a transposed B, from column to column.
  bool b_transposed = false;
  int64_t m = 0, n = 0, k = 0;
  float* sums = nullptr;  // kSkinnyScratchFloats of scratch.
  void* out = nullptr;
  int64_t out_stride = 0;
  bool out_is_bf16 = false;
};
// Sums that stay in the L1 cache while B is read, with padding between their rows.
inline constexpr int64_t kSkinnySums = 4096;
inline constexpr int64_t kSkinnyScratchFloats = kSkinnySums + kSkinnyRows * 16;

struct GemmKernels {
  int64_t rows = 0, columns = 0;  // Size of a panel.
  int64_t word_depth = 1;         // Elements of k in a word.
  int64_t word_multiple = 1;      // Packed words are padded with zeros to a multiple of this.

  // Pack operands that are contiguous along k. A becomes kRowMajor.
  void (*pack_a)(const PackSource& source, float* to) = nullptr;
  void (*pack_b_transposed)(const PackSource& source, float* to) = nullptr;
  // Pack operands that are contiguous along m or n. A becomes `transposed_a_order`.
  void (*pack_a_transposed)(const PackSource& source, float* to) = nullptr;
  void (*pack_b)(const PackSource& source, float* to) = nullptr;
  PackedOrder transposed_a_order = PackedOrder::kColumnMajor;

  void (*multiply)(const PackedBlocks& blocks) = nullptr;
  // Null if products of few rows use `multiply`. Packs rows of A `row_words` apart.
  void (*pack_skinny)(const PackSource& source, int64_t row_words, float* to) = nullptr;
  void (*multiply_skinny)(const SkinnyGemm& gemm) = nullptr;
};

enum class GemmPath {
  kF32,          // Fused multiply-adds of f32.
  kWidenedBf16,  // Like kF32; bf16 is widened while it is packed.
  kBf16Pairs,    // vdpbf16ps; level avx512_bf16.
  kBf16Tiles,    // tdpbf16ps; level amx.
};
// Returns the kernels of a path; `multiply` is null if the processor lacks the instructions.
const GemmKernels& gemm_kernels(GemmPath path);

// Returns the packing of kBf16Tiles, which any processor can run; `multiply` is null.
GemmKernels amx_packing();

}  // namespace tessera
