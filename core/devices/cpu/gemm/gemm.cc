// SPDX-License-Identifier: Apache-2.0
#include "core/devices/cpu/gemm/gemm.h"

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

}  // namespace

std::vector<GemmPath> gemm_paths(DType input) {
  if (input == DType::kF32) return {GemmPath::kF32};
  std::vector<GemmPath> paths = {GemmPath::kWidenedBf16};
  if (cpu_level() >= CpuLevel::kAvx512Bf16) paths.push_back(GemmPath::kBf16Pairs);
  if (cpu_level() >= CpuLevel::kAmx) paths.push_back(GemmPath::kBf16Tiles);
  return paths;
}

GemmPath gemm_path(DType input) { return gemm_paths(input).back(); }

Gemm::Gemm(const GemmShape& shape, GemmPath path) : Gemm(shape, gemm_kernels(path)) {
  CHECK((path == GemmPath::kF32) == (shape.input == DType::kF32));
}

Gemm::Gemm(const GemmShape& shape, const GemmKernels& kernels) : shape_(shape), kernels_(&kernels) {
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
                .n = even_part(shape_.n, kBlockColumns, kernels_->columns),
                .words = even_part(words(), kBlockWords, 16)};
  const int64_t most =
      std::max(blocks.words, kChunkFloats / blocks.n / blocks.words * blocks.words);
  // With one block of rows, a packed B is used once: it need not outlive its block.
  const bool once = shape_.m <= blocks.m;
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

int64_t Gemm::scratch_bytes() const {
  if (is_skinny()) {
    const int64_t a = shape_.input == DType::kF32 ? 0 : shape_.m * rounded_up(words(), 16);
    return (kSkinnyScratchFloats + a) * static_cast<int64_t>(sizeof(float));
  }
  const int64_t sums = keeps_sums() ? blocks_.sum_m * blocks_.n : 0;
  return (a_floats() + b_floats() + sums) * static_cast<int64_t>(sizeof(float));
}

void Gemm::run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch) const {
  if (is_skinny()) return run_skinny(a, b, c, reinterpret_cast<float*>(scratch));
  Scratch parts{.a = reinterpret_cast<float*>(scratch)};
  parts.b = parts.a + a_floats();
  parts.sums = parts.b + b_floats();
  const bool in_parts = keeps_sums() && blocks_.chunk_words < words();
  const int64_t rows = in_parts ? blocks_.sum_m : shape_.m;
  for (int64_t row = 0; row < shape_.m; row += rows) {
    for (int64_t column = 0; column < shape_.n; column += blocks_.n) {
      const Range2d part{row, std::min(rows, shape_.m - row), column,
                         std::min(blocks_.n, shape_.n - column)};
      run_columns(a, b, c, part, parts);
    }
  }
}

void Gemm::run_skinny(const std::byte* a, const std::byte* b, std::byte* c, float* scratch) const {
  SkinnyGemm gemm{.a = reinterpret_cast<const float*>(a),
                  .a_stride = shape_.a.leading,
                  .b = b,
                  .b_stride = shape_.b.leading,
                  .b_transposed = shape_.b.transposed,
                  .m = shape_.m,
                  .n = shape_.n,
                  .k = shape_.k,
                  .sums = scratch,
                  .out = c,
                  .out_stride = shape_.c_leading,
                  .out_is_bf16 = shape_.output == DType::kBF16};
  if (shape_.input != DType::kF32) {
    float* const packed = scratch + kSkinnyScratchFloats;
    gemm.a = packed;
    gemm.a_stride = rounded_up(words(), 16);
    kernels_->pack_skinny(
        {.data = a, .stride = shape_.a.leading, .rows = shape_.m, .depth = shape_.k}, gemm.a_stride,
        packed);
  }
  kernels_->multiply_skinny(gemm);
}

// Computes a block of columns of C.
void Gemm::run_columns(const std::byte* a, const std::byte* b, std::byte* c, Range2d part,
                       const Scratch& scratch) const {
  const int64_t chunk = blocks_.chunk_words * kernels_->word_depth;
  const int64_t step = blocks_.words * kernels_->word_depth;
  for (int64_t k = 0; k < shape_.k || k == 0; k += chunk) {
    const Depth depth{k, std::min(chunk, shape_.k - k)};
    for (int64_t inner = 0; inner < depth.size; inner += step) {
      const Depth block{k + inner, std::min(step, depth.size - inner)};
      const PackSource source = b_source(b, part.column, part.columns, block);
      float* const to = scratch.b + inner / kernels_->word_depth * blocks_.n;
      (shape_.b.transposed ? kernels_->pack_b_transposed : kernels_->pack_b)(source, to);
    }
    Prefetchers prefetchers;
    if (chunk == step && k + chunk < shape_.k) {
      const Depth next{k + chunk, std::min(chunk, shape_.k - k - chunk)};
      const int64_t tiles = tiles_of(blocks_.m, part.columns);
      const PackSource next_a = a_source(a, part.row, std::min(blocks_.m, part.rows), next);
      prefetchers.a = prefetcher_of(next_a, shape_.a.transposed, tiles);
      prefetchers.b =
          prefetcher_of(b_source(b, part.column, part.columns, next), !shape_.b.transposed, tiles);
    }
    run_chunk(a, c, part, depth, prefetchers, scratch);
  }
}

int64_t Gemm::tiles_of(int64_t rows, int64_t columns) const {
  return ceil_div(rows, kernels_->rows) * ceil_div(columns, kernels_->columns);
}

// Adds one packed chunk of k.
void Gemm::run_chunk(const std::byte* a, std::byte* c, Range2d part, Depth chunk,
                     Prefetchers& prefetchers, const Scratch& scratch) const {
  const int64_t step = blocks_.words * kernels_->word_depth;
  PackedBlocks blocks{.a = scratch.a,
                      .n = part.columns,
                      .out_stride = shape_.c_leading,
                      .out_is_bf16 = shape_.output == DType::kBF16,
                      .next_b = &prefetchers.b};
  blocks.a_order = shape_.a.transposed ? kernels_->transposed_a_order : PackedOrder::kRowMajor;
  const auto source_of = [&](int64_t i, int64_t inner) {
    return a_source(a, part.row + i, std::min(blocks_.m, part.rows - i),
                    {chunk.begin + inner, std::min(step, chunk.size - inner)});
  };
  for (int64_t i = 0; i < part.rows; i += blocks_.m) {
    blocks.m = std::min(blocks_.m, part.rows - i);
    blocks.out = c + ((part.row + i) * shape_.c_leading + part.column) * dtype_bytes(shape_.output);
    if (keeps_sums()) {
      blocks.sums = scratch.sums + (blocks_.sum_m > blocks_.m ? i * blocks_.n : 0);
      blocks.sums_stride = blocks_.n;
    } else {
      blocks.sums = static_cast<float*>(blocks.out);
      blocks.sums_stride = shape_.c_leading;
    }
    for (int64_t inner = 0; inner < chunk.size || inner == 0; inner += step) {
      const PackSource source = source_of(i, inner);
      blocks.words =
          rounded_up(ceil_div(source.depth, kernels_->word_depth), kernels_->word_multiple);
      blocks.b = scratch.b + inner / kernels_->word_depth * blocks_.n;
      blocks.first = chunk.begin + inner == 0 && !shape_.adds;
      blocks.last = chunk.begin + inner + source.depth == shape_.k;
      (shape_.a.transposed ? kernels_->pack_a_transposed : kernels_->pack_a)(source, scratch.a);
      const int64_t tiles = tiles_of(blocks.m, part.columns);
      Prefetcher next_a = prefetchers.a;
      if (inner + step < chunk.size) {
        next_a = prefetcher_of(source_of(i, inner + step), shape_.a.transposed, tiles);
      } else if (i + blocks_.m < part.rows) {
        next_a = prefetcher_of(source_of(i + blocks_.m, 0), shape_.a.transposed, tiles);
      }
      blocks.next_a = &next_a;
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
