// SPDX-License-Identifier: Apache-2.0
// C = A·B of one shape, on the calling thread. The layout of blocks follows Goto and van de Geijn
// ("Anatomy of High-Performance Matrix Multiplication", 2008): a block of B and one of A are packed
// into panels that stay in the caches, then multiplied by register tiles (matrix_kernels.h).
//
// An element's bits depend on its row of A, its column of B and the path alone: not on m and n, on
// threads, or on what else is computed. tests/core/backend/matrix_product_test.cc asserts it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"

namespace tessera {

struct PackSource;
struct ProductKernels;
class ReadAhead;

// How a matrix is stored: row-major with this many elements from row to row, or transposed (column
// to column).
struct MatrixLayout {
  int64_t leading = 0;
  bool transposed = false;
  bool operator==(const MatrixLayout&) const = default;
};

// A is m×k, B is k×n, C is m×n and row-major. Accumulates in f32.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  MatrixLayout a, b;
  int64_t c_leading = 0;
  DType input = DType::kF32;   // f32 or bf16.
  DType output = DType::kF32;  // f32, or bf16 if the input is.
  bool operator==(const ProductShape&) const = default;
};

enum class ProductPath {
  kF32,          // Fused multiply-adds of f32.
  kWidenedBf16,  // The same, of bf16 widened while it is packed.
  kBf16Pairs,    // vdpbf16ps; level avx512_bf16.
  kBf16Tiles,    // tdpbf16ps; level amx.
};
std::string_view path_name(ProductPath path);

// The path for operands of this dtype at the level in force.
ProductPath product_path(DType input);
// All paths for it that this level can run.
std::vector<ProductPath> product_paths(DType input);

class MatrixProduct {
 public:
  MatrixProduct(const ProductShape& shape, ProductPath path);
  MatrixProduct(const ProductShape& shape, const ProductKernels& kernels);

  int64_t scratch_bytes() const;
  // `scratch` is 64-byte aligned and the call's own.
  void run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch) const;

 private:
  // Sizes of blocks. B is packed `n` columns and `chunk_units` of k at a time, which then serve all
  // rows (or, where sums have to be kept until the next chunk, `sum_m` of them); A `m` rows and
  // `units` at a time, so that a block of C stays in cache while its chunk of k is summed.
  struct Blocks {
    int64_t sum_m = 0, m = 0, n = 0, units = 0, chunk_units = 0;
  };
  // Rows of C and the first column of a block of columns; elements of k.
  struct Range2d {
    int64_t row = 0, rows = 0, column = 0, columns = 0;
  };
  struct Depth {
    int64_t begin = 0, size = 0;
  };
  struct Ahead;
  struct Scratch {
    float* a = nullptr;
    float* b = nullptr;
    float* sums = nullptr;
  };

  Blocks choose_blocks() const;
  bool keeps_sums() const;
  int64_t a_floats() const;
  int64_t b_floats() const;
  int64_t units() const;
  bool streams() const;
  void run_few_rows(const std::byte* a, const std::byte* b, std::byte* c, float* scratch) const;
  void run_columns(const std::byte* a, const std::byte* b, std::byte* c, Range2d part,
                   const Scratch& scratch) const;
  void run_chunk(const std::byte* a, std::byte* c, Range2d part, Depth chunk, Ahead& ahead,
                 const Scratch& scratch) const;
  PackSource a_source(const std::byte* a, int64_t row, int64_t rows, Depth depth) const;
  PackSource b_source(const std::byte* b, int64_t column, int64_t columns, Depth depth) const;
  int64_t tiles_of(int64_t rows, int64_t columns) const;
  // A block asked for while `tiles` tiles multiply.
  ReadAhead ahead_of(const PackSource& source, bool lines_are_contiguous, int64_t tiles) const;

  ProductShape shape_;
  const ProductKernels* kernels_;
  Blocks blocks_;
};

}  // namespace tessera
