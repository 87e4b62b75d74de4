// SPDX-License-Identifier: Apache-2.0
// C = A·B of one shape, on the calling thread or on all threads of a pool. The blocking is that of
// Goto and van de Geijn ("Anatomy of High-Performance Matrix Multiplication", 2008): a block of B
// and a block of A are packed into panels that stay in the caches, then multiplied by microkernels
// (gemm_kernels.h). Threads pack a block of B together, then multiply parts of its result.
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
#include "core/devices/cpu/thread_pool.h"

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
// Fewest operations of a product that are worth several threads.
inline constexpr double kLeastOperations = 5e5;
// Rounds bytes of scratch up to cache lines.
inline int64_t aligned_bytes(int64_t bytes) { return rounded_up(bytes, 64); }

// Returns the path for operands of this dtype at cpu_level().
GemmPath gemm_path(DType input);
// Returns all paths for it that cpu_level() can run, slowest first.
std::vector<GemmPath> gemm_paths(DType input);

class Gemm {
 public:
  // A product for `run` on a pool of `threads` threads; 1: on the calling thread.
  Gemm(const GemmShape& shape, GemmPath path, int threads = 1);
  Gemm(const GemmShape& shape, const GemmKernels& kernels, int threads = 1);

  int64_t scratch_bytes() const;
  // Computes C; `scratch` is 64-byte aligned and not shared with a concurrent call. Without a pool
  // it computes on the calling thread.
  void run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch,
           ThreadPool* pool = nullptr) const;

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
  // The parts of a block of the result that threads multiply: equal ranges of rows and columns.
  struct Grid {
    int rows = 1, columns = 1;
  };
  // What a packed chunk of B is multiplied by, and the chunk of k after it, if there is one.
  struct Chunk {
    Depth depth, next;
  };
  // B and sums of several chunks are shared; a thread has its own A, and sums of one block of rows.
  struct Scratch {
    float* b = nullptr;
    float* sums = nullptr;
    float* rows = nullptr;
  };
  struct Operands {
    const std::byte* a = nullptr;
    const std::byte* b = nullptr;
    std::byte* c = nullptr;
  };

  Blocks choose_blocks() const;
  bool keeps_sums() const;
  bool shares_sums() const { return keeps_sums() && blocks_.chunk_words < words(); }
  bool shares_b() const;
  int64_t alone_columns() const;
  int64_t a_floats() const;
  int64_t b_floats() const;
  int64_t columns_floats() const;
  int64_t rows_floats() const;
  int64_t skinny_floats() const;
  int64_t words() const;
  int64_t padded_words(int64_t depth) const;
  bool is_skinny() const;
  Grid grid_of(const Range2d& block) const;
  void run_skinny(const Operands& of, float* scratch, ThreadPool* pool) const;
  void run_blocks(const Operands& of, Range columns, float* floats, ThreadPool* pool) const;
  void run_block(const Operands& of, const Range2d& block, const Scratch& scratch,
                 ThreadPool* pool) const;
  void pack_b(const Operands& of, const Range2d& block, Range columns, Depth chunk,
              float* to) const;
  void multiply_part(const Operands& of, const Range2d& block, const Range2d& part,
                     const Chunk& chunk, const Scratch& scratch) const;
  void set_result(const Operands& of, const Range2d& block, int64_t row, int64_t column,
                  const Scratch& scratch, PackedBlocks* blocks) const;
  PackSource part_source(const Operands& of, const Range2d& part, int64_t i, Depth chunk,
                         int64_t inner) const;
  // Describe rows of A, or columns of B.
  PackSource a_source(const std::byte* a, int64_t row, int64_t rows, Depth depth) const;
  PackSource b_source(const std::byte* b, int64_t column, int64_t columns, Depth depth) const;
  int64_t tiles_of(int64_t rows, int64_t columns) const;
  // Prefetches a block while `tiles` register tiles are multiplied.
  Prefetcher prefetcher_of(const PackSource& source, bool column_major, int64_t tiles) const;

  GemmShape shape_;
  const GemmKernels* kernels_;
  Blocks blocks_;
  int threads_;
};

}  // namespace tessera
