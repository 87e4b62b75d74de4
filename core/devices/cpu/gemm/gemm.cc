// SPDX-License-Identifier: Apache-2.0
#include "core/devices/cpu/gemm/gemm.h"

#include <numeric>

#include "core/base/error.h"
#include "core/devices/cpu/processor.h"

namespace tessera {
namespace {

// Block sizes (Goto's m_c, n_c and k_c). A packed A takes 192 KB and a block of C at most 480 KB of
// the L2 cache; a packed B takes 4 MB of the L3 cache.
constexpr int64_t kBlockRows = 120;
// Block of a transposed A, which is read one k after another, in longer pieces: 307 KB.
constexpr int64_t kTransposedBlockRows = 192;
constexpr int64_t kBlockColumns = 1024;
constexpr int64_t kChunkFloats = int64_t{1} << 20;
// AMX with few rows is bound by reading B once: a packed B stays in the L2 cache, and its blocks
// are wide and shallow, so that long runs of memory are read in order.
constexpr int64_t kSkinnyBlockWords = 32;
constexpr int64_t kSkinnyPackedFloats = int64_t{1} << 16;
// If the result is bf16 and k has several chunks, f32 sums are kept for this many rows.
constexpr int64_t kSumRows = 1024;
// Parts of a block for each thread, of at least so many rows; rows of a transposed A are read
// together, one k after another.
constexpr int kPartsOfThread = 4;
constexpr int64_t kLeastPartRows = 24, kLeastTransposedPartRows = 128;
// Columns that a thread multiplies alone, if each needs all rows of A: it packs them for each part.
constexpr int64_t kAloneColumns = 512;

// Calls work(range, thread) for parts of [0, count), on the threads of a pool if there is one.
template <typename Work>
void for_parts(ThreadPool* pool, int64_t count, int64_t grain, const Work& work) {
  pool == nullptr ? work(Range{0, count}, 0) : pool->parallel(count, grain, work);
}

}  // namespace

std::vector<GemmPath> gemm_paths(DType input) {
  if (input == DType::kF32) return {GemmPath::kF32};
  std::vector<GemmPath> paths = {GemmPath::kWidenedBf16};
  if (cpu_level() >= CpuLevel::kAvx512Bf16) paths.push_back(GemmPath::kBf16Pairs);
  if (cpu_level() >= CpuLevel::kAmx) paths.push_back(GemmPath::kBf16Tiles);
  return paths;
}

GemmPath gemm_path(DType input) { return gemm_paths(input).back(); }

Gemm::Gemm(const GemmShape& shape, GemmPath path, int threads)
    : Gemm(shape, gemm_kernels(path), threads) {
  CHECK((path == GemmPath::kF32) == (shape.input == DType::kF32));
}

Gemm::Gemm(const GemmShape& shape, const GemmKernels& kernels, int threads)
    : shape_(shape), kernels_(&kernels), threads_(threads) {
  CHECK(kernels.multiply != nullptr, "this processor lacks the instructions of the microkernel");
  blocks_ = choose_blocks();
  CHECK(!shape.adds || (shape.a.transposed && shape.output == DType::kF32));
}

int64_t Gemm::words() const { return ceil_div(shape_.k, kernels_->word_depth); }

bool Gemm::keeps_sums() const { return shape_.output == DType::kBF16 && words() > blocks_.words; }

Gemm::Blocks Gemm::choose_blocks() const {
  if (shape_.m <= kSkinnyRows) {
    const int64_t most_words = shape_.b.transposed ? kBlockWords : kSkinnyBlockWords;
    Blocks blocks{.sum_m = shape_.m,
                  .m = rounded_up(shape_.m, kernels_->rows),
                  .words = even_part(words(), most_words, 16)};
    blocks.n = even_part(shape_.n, kSkinnyPackedFloats / blocks.words, kernels_->columns);
    blocks.chunk_words = blocks.words;
    return blocks;
  }
  const int64_t most_rows = shape_.a.transposed ? kTransposedBlockRows : kBlockRows;
  Blocks blocks{.m = even_part(shape_.m, most_rows, kernels_->rows),
                .words = even_part(words(), kBlockWords, 16)};
  // With one block of rows, a packed B is used once: it need not outlive its block.
  const bool once = shape_.m <= blocks.m;
  blocks.n = even_part(once ? std::min(shape_.n, alone_columns()) : shape_.n, kBlockColumns,
                       kernels_->columns);
  const int64_t most =
      std::max(blocks.words, kChunkFloats / blocks.n / blocks.words * blocks.words);
  blocks.chunk_words = once ? blocks.words : even_part(words(), most, blocks.words);
  blocks.sum_m = std::min(shape_.m, blocks.chunk_words < words() ? kSumRows : blocks.m);
  return blocks;
}

bool Gemm::is_skinny() const {
  return shape_.m <= kSkinnyRows && !shape_.a.transposed && kernels_->multiply_skinny != nullptr;
}

int64_t Gemm::a_floats() const { return blocks_.m * kRowWords; }
int64_t Gemm::b_floats() const {
  return blocks_.n * rounded_up(blocks_.chunk_words, kernels_->word_multiple);
}

// B is packed once for all threads if it is multiplied by several blocks of rows. Otherwise each
// thread packs and multiplies columns alone.
bool Gemm::shares_b() const { return threads_ > 1 && !is_skinny() && shape_.m > blocks_.m; }

int64_t Gemm::alone_columns() const {
  const int64_t even = rounded_up(ceil_div(shape_.n, threads_), kColumnGrain);
  return threads_ == 1 ? shape_.n : std::min(even, kAloneColumns);
}

// Floats for a packed B, and for sums of several chunks of k.
int64_t Gemm::columns_floats() const {
  return b_floats() + (shares_sums() ? blocks_.sum_m * blocks_.n : 0);
}

// Floats for a packed A, and for sums of one block of rows.
int64_t Gemm::rows_floats() const {
  return a_floats() + (keeps_sums() && !shares_sums() ? blocks_.sum_m * blocks_.n : 0);
}

int64_t Gemm::scratch_bytes() const {
  int64_t floats = threads_ * (columns_floats() + rows_floats());
  if (shares_b()) floats = columns_floats() + threads_ * rows_floats();
  if (is_skinny()) floats = skinny_floats() + threads_ * kSkinnyScratchFloats;
  return floats * static_cast<int64_t>(sizeof(float));
}

void Gemm::run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch,
               ThreadPool* pool) const {
  CHECK(pool == nullptr || pool->size() <= threads_);
  const Operands of{a, b, c};
  float* const floats = reinterpret_cast<float*>(scratch);
  if (is_skinny()) return run_skinny(of, floats, pool);
  if (shares_b()) return run_blocks(of, {0, shape_.n}, floats, pool);
  for_parts(pool, shape_.n, alone_columns(), [&](Range columns, int thread) {
    run_blocks(of, columns, floats + thread * (columns_floats() + rows_floats()), nullptr);
  });
}

// Computes columns of C.
void Gemm::run_blocks(const Operands& of, Range columns, float* floats, ThreadPool* pool) const {
  const Scratch scratch{
      .b = floats, .sums = floats + b_floats(), .rows = floats + columns_floats()};
  const int64_t rows = shares_sums() ? blocks_.sum_m : shape_.m;
  for (int64_t row = 0; row < shape_.m; row += rows) {
    for (int64_t column = columns.begin; column < columns.end; column += blocks_.n) {
      const Range2d block{row, std::min(rows, shape_.m - row), column,
                          std::min(blocks_.n, columns.end - column)};
      run_block(of, block, scratch, pool);
    }
  }
}

// Floats for a packed A of bf16.
int64_t Gemm::skinny_floats() const {
  return shape_.input == DType::kF32 ? 0 : shape_.m * rounded_up(words(), 16);
}

void Gemm::run_skinny(const Operands& of, float* scratch, ThreadPool* pool) const {
  SkinnyGemm all{.a = reinterpret_cast<const float*>(of.a),
                 .a_stride = shape_.a.leading,
                 .b_stride = shape_.b.leading,
                 .b_transposed = shape_.b.transposed,
                 .m = shape_.m,
                 .k = shape_.k,
                 .out_stride = shape_.c_leading,
                 .out_is_bf16 = shape_.output == DType::kBF16};
  if (shape_.input != DType::kF32) {
    float* const packed = scratch;
    all.a = packed;
    all.a_stride = rounded_up(words(), 16);
    kernels_->pack_skinny(
        {.data = of.a, .stride = shape_.a.leading, .rows = shape_.m, .depth = shape_.k},
        all.a_stride, packed);
  }
  for_parts(pool, shape_.n, kColumnGrain, [&](Range columns, int thread) {
    SkinnyGemm part = all;
    part.b = b_source(of.b, columns.begin, columns.size(), {0, shape_.k}).data;
    part.n = columns.size();
    part.sums = scratch + skinny_floats() + thread * kSkinnyScratchFloats;
    part.out = of.c + columns.begin * dtype_bytes(shape_.output);
    kernels_->multiply_skinny(part);
  });
}

Gemm::Grid Gemm::grid_of(const Range2d& block) const {
  const int64_t least_rows = shape_.a.transposed ? kLeastTransposedPartRows : kLeastPartRows;
  const int64_t rows = std::clamp<int64_t>(block.rows / least_rows, 1, threads_ * kPartsOfThread);
  // The number of parts is a multiple of the number of threads, so that they are equal.
  const int64_t columns = threads_ / std::gcd(threads_, rows);
  const int64_t most_columns = std::max<int64_t>(1, block.columns / (2 * kernels_->columns));
  return {static_cast<int>(rows), static_cast<int>(std::min(columns, most_columns))};
}

// Computes a block of C.
void Gemm::run_block(const Operands& of, const Range2d& block, const Scratch& scratch,
                     ThreadPool* pool) const {
  const int64_t depth = blocks_.chunk_words * kernels_->word_depth;
  const auto chunk_at = [&](int64_t k) {
    return Depth{k, std::clamp<int64_t>(shape_.k - k, 0, depth)};
  };
  const Grid grid = pool == nullptr ? Grid{} : grid_of(block);
  for (int64_t k = 0; k < shape_.k || k == 0; k += depth) {
    const Chunk chunk{chunk_at(k), chunk_at(k + depth)};
    for_parts(pool, block.columns, 2 * kernels_->columns,
              [&](Range columns, int) { pack_b(of, block, columns, chunk.depth, scratch.b); });
    for_parts(pool, int64_t{grid.rows} * grid.columns, 1, [&](Range parts, int thread) {
      Scratch own = scratch;
      own.rows += thread * rows_floats();
      for (int64_t i = parts.begin; i < parts.end; ++i) {
        const int row = static_cast<int>(i) / grid.columns;
        const int column = static_cast<int>(i) % grid.columns;
        const Range rows = part_of(block.rows, row, grid.rows, kRowGrain);
        const Range columns = part_of(block.columns, column, grid.columns, kernels_->columns);
        const Range2d part{block.row + rows.begin, rows.size(), block.column + columns.begin,
                           columns.size()};
        if (part.rows > 0 && part.columns > 0) multiply_part(of, block, part, chunk, own);
      }
    });
  }
}

// Packs columns of a block, which begin with a whole panel.
void Gemm::pack_b(const Operands& of, const Range2d& block, Range columns, Depth chunk,
                  float* to) const {
  const int64_t step = blocks_.words * kernels_->word_depth;
  const auto pack = shape_.b.transposed ? kernels_->pack_b_transposed : kernels_->pack_b;
  for (int64_t inner = 0; inner < chunk.size; inner += step) {
    const PackSource source = b_source(of.b, block.column + columns.begin, columns.size(),
                                       {chunk.begin + inner, std::min(step, chunk.size - inner)});
    pack(source, to + inner / kernels_->word_depth * blocks_.n +
                     columns.begin * padded_words(source.depth));
  }
}

int64_t Gemm::padded_words(int64_t depth) const {
  return rounded_up(ceil_div(depth, kernels_->word_depth), kernels_->word_multiple);
}

int64_t Gemm::tiles_of(int64_t rows, int64_t columns) const {
  return ceil_div(rows, kernels_->rows) * ceil_div(columns, kernels_->columns);
}

// The block of A that begins at row i of a part, `inner` after the beginning of a chunk of k; empty
// behind the end of either.
PackSource Gemm::part_source(const Operands& of, const Range2d& part, int64_t i, Depth chunk,
                             int64_t inner) const {
  const int64_t rows = even_part(part.rows, blocks_.m, kernels_->rows);
  const int64_t step = blocks_.words * kernels_->word_depth;
  return a_source(of.a, part.row + i, std::clamp<int64_t>(part.rows - i, 0, rows),
                  {chunk.begin + inner, std::clamp<int64_t>(chunk.size - inner, 0, step)});
}

// Sets where rows from `row` and columns from `column` of C are, and where their sums are kept.
void Gemm::set_result(const Operands& of, const Range2d& block, int64_t row, int64_t column,
                      const Scratch& scratch, PackedBlocks* blocks) const {
  blocks->out = of.c + (row * shape_.c_leading + column) * dtype_bytes(shape_.output);
  blocks->sums_stride = keeps_sums() ? blocks_.n : shape_.c_leading;
  if (shares_sums()) {
    blocks->sums = scratch.sums + (row - block.row) * blocks_.n + column - block.column;
  } else if (keeps_sums()) {
    blocks->sums = scratch.rows + a_floats();
  } else {
    blocks->sums = static_cast<float*>(blocks->out);
  }
}

// Adds one packed chunk of k to a part of a block.
void Gemm::multiply_part(const Operands& of, const Range2d& block, const Range2d& part,
                         const Chunk& chunk, const Scratch& scratch) const {
  const int64_t step = blocks_.words * kernels_->word_depth;
  const int64_t most_rows = even_part(part.rows, blocks_.m, kernels_->rows);
  const bool next_is_near = chunk.depth.size <= step;  // The next chunk is packed after a block.
  const auto pack_a = shape_.a.transposed ? kernels_->pack_a_transposed : kernels_->pack_a;
  PackedBlocks blocks{.a = scratch.rows,
                      .n = part.columns,
                      .out_stride = shape_.c_leading,
                      .out_is_bf16 = shape_.output == DType::kBF16};
  blocks.a_order = shape_.a.transposed ? kernels_->transposed_a_order : PackedOrder::kRowMajor;
  // The parts of the first rows of a block prefetch B.
  Prefetcher next_a, next_b;
  if (next_is_near && part.row == block.row)
    next_b = prefetcher_of(b_source(of.b, part.column, part.columns, chunk.next),
                           !shape_.b.transposed, tiles_of(most_rows, part.columns));
  blocks.next_a = &next_a;
  blocks.next_b = &next_b;
  for (int64_t i = 0; i < part.rows; i += most_rows) {
    blocks.m = std::min(most_rows, part.rows - i);
    set_result(of, block, part.row + i, part.column, scratch, &blocks);
    for (int64_t inner = 0; inner < chunk.depth.size || inner == 0; inner += step) {
      const PackSource source = part_source(of, part, i, chunk.depth, inner);
      blocks.words = padded_words(source.depth);
      blocks.b = scratch.b + inner / kernels_->word_depth * blocks_.n +
                 (part.column - block.column) * blocks.words;
      blocks.first = chunk.depth.begin + inner == 0 && !shape_.adds;
      blocks.last = chunk.depth.begin + inner + source.depth == shape_.k;
      pack_a(source, scratch.rows);
      PackSource next = part_source(of, part, i, chunk.depth, inner + step);
      if (next.depth == 0) next = part_source(of, part, i + most_rows, chunk.depth, 0);
      if (next.rows == 0 && next_is_near) next = part_source(of, part, 0, chunk.next, 0);
      next_a = prefetcher_of(next, shape_.a.transposed, tiles_of(blocks.m, part.columns));
      kernels_->multiply(blocks);
    }
  }
}

PackSource Gemm::a_source(const std::byte* a, int64_t row, int64_t rows, Depth depth) const {
  const auto [leading, transposed] = shape_.a;
  const int64_t begin = transposed ? depth.begin * leading + row : row * leading + depth.begin;
  return {a + begin * dtype_bytes(shape_.input), leading, rows, depth.size};
}

PackSource Gemm::b_source(const std::byte* b, int64_t column, int64_t columns, Depth depth) const {
  const auto [leading, transposed] = shape_.b;
  const int64_t begin =
      transposed ? column * leading + depth.begin : depth.begin * leading + column;
  return {b + begin * dtype_bytes(shape_.input), leading, columns, depth.size};
}

Prefetcher Gemm::prefetcher_of(const PackSource& source, bool column_major, int64_t tiles) const {
  const int64_t bytes = dtype_bytes(shape_.input);
  const int64_t rows = column_major ? source.depth : source.rows;
  const int64_t row = column_major ? source.rows : source.depth;
  return {source.data, rows, row * bytes, source.stride * bytes, tiles};
}

}  // namespace tessera
