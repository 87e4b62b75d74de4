// SPDX-License-Identifier: Apache-2.0
// C = A·B of one shape, on the calling thread. The blocking is that of Goto and van de Geijn
// ("Anatomy of High-Performance Matrix Multiplication", 2008): a block of B and a block of A are
// packed into panels that stay in the caches, then multiplied by microkernels (gemm_kernels.h).
//
// The bits of an element depend on its row of A, its column of B and the path only: not on m and n,
// the threads or the other elements. tests/core/devices/gemm_test.cc checks it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/multiples.h"
#include "core/devices/contraction.h"
#include "core/devices/cpu/gemm/gemm_kernels.h"

namespace tessera {

// Sums are continued (GemmShape::adds) after multiples of this depth: a tile of bf16 in AMX.
inline constexpr int64_t kWholeDepth = 32;

// Parameters of the division of a product: grains with which few register tiles are incomplete, and
// the size of the fewest equal parts of `count` that are at most `most` and multiples of `grain`.
inline constexpr int64_t kRowGrain = 8, kColumnGrain = 32;
inline int64_t even_part(int64_t count, int64_t most, int64_t grain) {
  count = std::max<int64_t>(count, 1);
  const int64_t parts = ceil_div(count, most);
  return std::min(rounded_up(ceil_div(count, parts), grain), rounded_up(most, grain));
}
// Rounds bytes of scratch up to cache lines.
inline int64_t aligned_bytes(int64_t bytes) { return rounded_up(bytes, 64); }

// Returns the path for operands of this dtype at cpu_level().
GemmPath gemm_path(DType input);
// Returns all paths for it that cpu_level() can run, slowest first.
std::vector<GemmPath> gemm_paths(DType input);

class Gemm {
 public:
  Gemm(const GemmShape& shape, GemmPath path);
  Gemm(const GemmShape& shape, const GemmKernels& kernels);

  int64_t scratch_bytes() const;
  // Computes C; `scratch` is 64-byte aligned and not shared with a concurrent call.
  void run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch) const;

 private:
  // Block sizes. B is packed `n` columns and `chunk_words` of k at a time and then used for all
  // rows (or, if sums have to be kept until the next chunk, for `sum_m` rows). A is packed `m` rows
  // and `words` at a time, so that a block of C stays in cache while its chunk of k is summed.
  struct Blocks {
    int64_t sum_m = 0, m = 0, n = 0, words = 0, chunk_words = 0;
  };
  struct Range2d {
    int64_t row = 0, rows = 0, column = 0, columns = 0;
  };
  struct Depth {
    int64_t begin = 0, size = 0;
  };
  // Prefetchers of the blocks that are packed after the current ones are multiplied.
  struct Prefetchers {
    Prefetcher a, b;
  };
  struct Scratch {
    float* a = nullptr;
    float* b = nullptr;
    float* sums = nullptr;
  };

  Blocks choose_blocks() const;
  bool keeps_sums() const;
  int64_t a_floats() const;
  int64_t b_floats() const;
  int64_t words() const;
  bool is_skinny() const;
  void run_skinny(const std::byte* a, const std::byte* b, std::byte* c, float* scratch) const;
  void run_columns(const std::byte* a, const std::byte* b, std::byte* c, Range2d part,
                   const Scratch& scratch) const;
  void run_chunk(const std::byte* a, std::byte* c, Range2d part, Depth chunk,
                 Prefetchers& prefetchers, const Scratch& scratch) const;
  // Describe rows of A, or columns of B.
  PackSource a_source(const std::byte* a, int64_t row, int64_t rows, Depth depth) const;
  PackSource b_source(const std::byte* b, int64_t column, int64_t columns, Depth depth) const;
  int64_t tiles_of(int64_t rows, int64_t columns) const;
  // Prefetches a block while `tiles` register tiles are multiplied.
  Prefetcher prefetcher_of(const PackSource& source, bool column_major, int64_t tiles) const;

  GemmShape shape_;
  const GemmKernels* kernels_;
  Blocks blocks_;
};

}  // namespace tessera
