// SPDX-License-Identifier: Apache-2.0
// C = A·B for one fixed shape, by the library that is fastest on this processor, or by our own
// loops where rows are few (measurements in docs/performance.md). Each call runs on the calling
// thread alone; our team splits the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/base/dtype.h"

namespace tessera {

// How a matrix lies: row-major with this many elements from row to row, or transposed (column to
// column).
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
  DType input = DType::kF32;
  DType output = DType::kF32;
  bool operator==(const ProductShape&) const = default;
};

enum class ProductLibrary {
  kOpenBlas,         // f32 in and out.
  kOpenBlasWidened,  // bf16 in, by way of f32 copies.
  kOneDnn,           // f32, or bf16 by the processor's own instructions.
  kFewRows,          // Ours (few_rows_product.h), for what best_product says.
};
std::string_view library_name(ProductLibrary library);
// The library for large products of these operands on this processor, and for one of this shape.
ProductLibrary best_library(DType input);
ProductLibrary best_library(const ProductShape& shape);

class MatrixProduct {
 public:
  virtual ~MatrixProduct() = default;
  virtual int64_t scratch_bytes() const = 0;
  // One call at a time; each thread has a product of its own.
  virtual void run(const std::byte* a, const std::byte* b, std::byte* c, std::byte* scratch) = 0;
};

std::unique_ptr<MatrixProduct> make_matrix_product(const ProductShape& shape,
                                                   ProductLibrary library);

}  // namespace tessera
