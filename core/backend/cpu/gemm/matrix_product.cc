// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/gemm/matrix_product.h"

#include <algorithm>
#include <cstring>

#include "core/backend/cpu/features.h"
#include "core/backend/cpu/gemm/matrix_kernels.h"
#include "core/base/error.h"

namespace tessera {
namespace {

// Sizes of blocks. A packed A takes 192 KB and a block of C at most 480 KB, of the second-level
// cache; a packed B 4 MB, of the third-level one.
constexpr int64_t kBlockRows = 120;
// A transposed A is read row of k by row of k, in longer pieces: 307 KB.
constexpr int64_t kTransposedBlockRows = 192;
constexpr int64_t kBlockColumns = 1024;
constexpr int64_t kChunkFloats = int64_t{1} << 20;
// With few rows by AMX, what counts is to read B once: a packed B stays in the second-level cache,
// and is cut so that long runs of memory are read in order.
constexpr int64_t kFewRowsUnits = 32;
constexpr int64_t kFewRowsFloats = int64_t{1} << 16;
// Where the result is bf16 and k has several chunks, sums in f32 of this many rows.
constexpr int64_t kSumRows = 1024;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t rounded_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// The size of `count` cut into equal parts of at most `most`, in multiples of `grain`; one at
// least.
int64_t even_part(int64_t count, int64_t most, int64_t grain) {
  count = std::max<int64_t>(count, 1);
  const int64_t parts = ceil_div(count, most);
  return std::min(rounded_up(ceil_div(count, parts), grain), rounded_up(most, grain));
}

const ProductKernels& kernels_of(ProductPath path) {
  switch (path) {
    case ProductPath::kF32:
      return f32_kernels();
    case ProductPath::kWidenedBf16:
      return widened_bf16_kernels();
    case ProductPath::kBf16Pairs:
      return bf16_pair_kernels();
    case ProductPath::kBf16Tiles:
      return bf16_tile_kernels();
  }
  return f32_kernels();
}

}  // namespace

// The blocks that are packed after those that are multiplied.
struct MatrixProduct::Ahead {
  ReadAhead a, b;
};

std::string_view path_name(ProductPath path) {
  switch (path) {
    case ProductPath::kF32:
      return "f32";
    case ProductPath::kWidenedBf16:
      return "bf16 widened to f32";
    case ProductPath::kBf16Pairs:
      return "bf16 pairs";
    case ProductPath::kBf16Tiles:
      return "bf16 tiles";
  }
  return "";
}

std::vector<ProductPath> product_paths(DType input) {
  if (input == DType::kF32) return {ProductPath::kF32};
  std::vector<ProductPath> paths = {ProductPath::kWidenedBf16};
  if (cpu_level() >= CpuLevel::kAvx512Bf16) paths.push_back(ProductPath::kBf16Pairs);
  if (cpu_level() >= CpuLevel::kAmx) paths.push_back(ProductPath::kBf16Tiles);
  return paths;
}

ProductPath product_path(DType input) { return product_paths(input).back(); }

MatrixProduct::MatrixProduct(const ProductShape& shape, ProductPath path)
    : MatrixProduct(shape, kernels_of(path)) {
  CHECK((path == ProductPath::kF32) == (shape.input == DType::kF32));
}

MatrixProduct::MatrixProduct(const ProductShape& shape, const ProductKernels& kernels)
    : shape_(shape), kernels_(&kernels) {
  CHECK(kernels.multiply != nullptr, "this processor lacks the instructions of the product");
  blocks_ = choose_blocks();
}

int64_t MatrixProduct::units() const { return ceil_div(shape_.k, kernels_->unit_depth); }

bool MatrixProduct::keeps_sums() const {
  return shape_.output == DType::kBF16 && units() > blocks_.units;
}

MatrixProduct::Blocks MatrixProduct::choose_blocks() const {
  if (shape_.m <= kFewRows) {
    const int64_t most_units = shape_.b.transposed ? kBlockUnits : kFewRowsUnits;
    Blocks blocks{.sum_m = shape_.m,
                  .m = rounded_up(shape_.m, kernels_->rows),
                  .units = even_part(units(), most_units, 16)};
    blocks.n = even_part(shape_.n, kFewRowsFloats / blocks.units, kernels_->columns);
    blocks.chunk_units = blocks.units;
    return blocks;
  }
  const int64_t most_rows = shape_.a.transposed ? kTransposedBlockRows : kBlockRows;
  Blocks blocks{.m = even_part(shape_.m, most_rows, kernels_->rows),
                .n = even_part(shape_.n, kBlockColumns, kernels_->columns),
                .units = even_part(units(), kBlockUnits, 16)};
  const int64_t most =
      std::max(blocks.units, kChunkFloats / blocks.n / blocks.units * blocks.units);
  // A packed B that one block of A is multiplied by serves once: it need not outlive its block.
  const bool once = shape_.m <= blocks.m;
  blocks.chunk_units = once ? blocks.units : even_part(units(), most, blocks.units);
  blocks.sum_m = std::min(shape_.m, blocks.chunk_units < units() ? kSumRows : blocks.m);
  return blocks;
}

bool MatrixProduct::streams() const {
  return shape_.m <= kFewRows && !shape_.a.transposed && kernels_->multiply_few_rows != nullptr;
}

int64_t MatrixProduct::a_floats() const { return blocks_.m * kRowUnits; }
int64_t MatrixProduct::b_floats() const {
  return blocks_.n * rounded_up(blocks_.chunk_units, kernels_->unit_multiple);
}

int64_t MatrixProduct::scratch_bytes() const {
  if (streams()) {
    const int64_t a = shape_.input == DType::kF32 ? 0 : shape_.m * rounded_up(units(), 16);
    return (kStreamFloats + a) * static_cast<int64_t>(sizeof(float));
  }
  const int64_t sums = keeps_sums() ? blocks_.sum_m * blocks_.n : 0;
  return (a_floats() + b_floats() + sums) * static_cast<int64_t>(sizeof(float));
}

void MatrixProduct::run(const std::byte* a, const std::byte* b, std::byte* c,
                        std::byte* scratch) const {
  if (streams()) return run_few_rows(a, b, c, reinterpret_cast<float*>(scratch));
  Scratch parts{.a = reinterpret_cast<float*>(scratch)};
  parts.b = parts.a + a_floats();
  parts.sums = parts.b + b_floats();
  const bool in_parts = keeps_sums() && blocks_.chunk_units < units();
  const int64_t rows = in_parts ? blocks_.sum_m : shape_.m;
  for (int64_t row = 0; row < shape_.m; row += rows) {
    for (int64_t column = 0; column < shape_.n; column += blocks_.n) {
      const Range2d part{row, std::min(rows, shape_.m - row), column,
                         std::min(blocks_.n, shape_.n - column)};
      run_columns(a, b, c, part, parts);
    }
  }
}

void MatrixProduct::run_few_rows(const std::byte* a, const std::byte* b, std::byte* c,
                                 float* scratch) const {
  FewRowsProduct product{.a = reinterpret_cast<const float*>(a),
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
    float* const packed = scratch + kStreamFloats;
    product.a = packed;
    product.a_stride = rounded_up(units(), 16);
    kernels_->pack_few_rows(
        {.data = a, .stride = shape_.a.leading, .lines = shape_.m, .depth = shape_.k},
        product.a_stride, packed);
  }
  kernels_->multiply_few_rows(product);
}

// A block of columns of C.
void MatrixProduct::run_columns(const std::byte* a, const std::byte* b, std::byte* c, Range2d part,
                                const Scratch& scratch) const {
  const int64_t chunk = blocks_.chunk_units * kernels_->unit_depth;
  const int64_t step = blocks_.units * kernels_->unit_depth;
  for (int64_t k = 0; k < shape_.k || k == 0; k += chunk) {
    const Depth depth{k, std::min(chunk, shape_.k - k)};
    for (int64_t inner = 0; inner < depth.size; inner += step) {
      const Depth block{k + inner, std::min(step, depth.size - inner)};
      const PackSource source = b_source(b, part.column, part.columns, block);
      float* const to = scratch.b + inner / kernels_->unit_depth * blocks_.n;
      (shape_.b.transposed ? kernels_->pack_b_columns : kernels_->pack_b_rows)(source, to);
    }
    Ahead ahead;
    if (chunk == step && k + chunk < shape_.k) {
      const Depth next{k + chunk, std::min(chunk, shape_.k - k - chunk)};
      const int64_t tiles = tiles_of(blocks_.m, part.columns);
      const PackSource next_a = a_source(a, part.row, std::min(blocks_.m, part.rows), next);
      ahead.a = ahead_of(next_a, shape_.a.transposed, tiles);
      ahead.b = ahead_of(b_source(b, part.column, part.columns, next), !shape_.b.transposed, tiles);
    }
    run_chunk(a, c, part, depth, ahead, scratch);
  }
}

int64_t MatrixProduct::tiles_of(int64_t rows, int64_t columns) const {
  return ceil_div(rows, kernels_->rows) * ceil_div(columns, kernels_->columns);
}

// Adds one packed chunk of k.
void MatrixProduct::run_chunk(const std::byte* a, std::byte* c, Range2d part, Depth chunk,
                              Ahead& ahead, const Scratch& scratch) const {
  const int64_t step = blocks_.units * kernels_->unit_depth;
  PackedBlocks blocks{.a = scratch.a,
                      .n = part.columns,
                      .out_stride = shape_.c_leading,
                      .out_is_bf16 = shape_.output == DType::kBF16,
                      .next_b = &ahead.b};
  blocks.a_order = shape_.a.transposed ? kernels_->transposed_order : PackedOrder::kRowMajor;
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
      blocks.units =
          rounded_up(ceil_div(source.depth, kernels_->unit_depth), kernels_->unit_multiple);
      blocks.b = scratch.b + inner / kernels_->unit_depth * blocks_.n;
      blocks.first = chunk.begin + inner == 0;
      blocks.last = chunk.begin + inner + source.depth == shape_.k;
      (shape_.a.transposed ? kernels_->pack_a_transposed : kernels_->pack_a_rows)(source,
                                                                                  scratch.a);
      const int64_t tiles = tiles_of(blocks.m, part.columns);
      ReadAhead next_a = ahead.a;
      if (inner + step < chunk.size) {
        next_a = ahead_of(source_of(i, inner + step), shape_.a.transposed, tiles);
      } else if (i + blocks_.m < part.rows) {
        next_a = ahead_of(source_of(i + blocks_.m, 0), shape_.a.transposed, tiles);
      }
      blocks.next_a = &next_a;
      kernels_->multiply(blocks);
    }
  }
}

PackSource MatrixProduct::a_source(const std::byte* a, int64_t row, int64_t rows,
                                   Depth depth) const {
  const MatrixLayout& layout = shape_.a;
  const int64_t begin =
      layout.transposed ? depth.begin * layout.leading + row : row * layout.leading + depth.begin;
  return {.data = a + begin * dtype_bytes(shape_.input),
          .stride = layout.leading,
          .lines = rows,
          .depth = depth.size};
}

PackSource MatrixProduct::b_source(const std::byte* b, int64_t column, int64_t columns,
                                   Depth depth) const {
  const MatrixLayout& layout = shape_.b;
  const int64_t begin = layout.transposed ? column * layout.leading + depth.begin
                                          : depth.begin * layout.leading + column;
  return {.data = b + begin * dtype_bytes(shape_.input),
          .stride = layout.leading,
          .lines = columns,
          .depth = depth.size};
}

ReadAhead MatrixProduct::ahead_of(const PackSource& source, bool lines_are_contiguous,
                                  int64_t tiles) const {
  const int64_t bytes = dtype_bytes(shape_.input);
  const int64_t rows = lines_are_contiguous ? source.depth : source.lines;
  const int64_t row = lines_are_contiguous ? source.lines : source.depth;
  return {source.data, rows, row * bytes, source.stride * bytes, tiles};
}

}  // namespace tessera
