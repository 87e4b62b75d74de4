// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in product.cu.
#pragma once

#include <cstdint>

namespace tessera::cuda {

// What is applied to each element of a product, x, in f32. The gradients multiply by the slope at a
// saved operand. GELU is the tanh approximation, as in cuBLASLt.
enum class Activation : int32_t { kNone, kGelu, kSilu, kGeluGradient, kSiluGradient };

// C = activation(A·B + bias) + addend. A is m×k, B is k×n, C is m×n and row-major. Pointers to bf16
// or f32.
struct ProductParameters {
  const void *a, *b;
  void* c;
  const void* bias;    // Null, or n elements of C's dtype.
  const void* slopes;  // For the gradients: the activation's operand, like C.
  const void* addend;  // Null, or like C; may be C.
  void* saved;         // Null, or where A·B + bias is stored, like C.
  int64_t batches;
  int64_t a_stride, b_stride, c_stride;  // Elements from one product of the batch to the next.
  int64_t a_leading, b_leading, c_leading;
  int32_t m, n, k;
  Activation activation;
  bool c_is_bf16;
  bool a_aligned, b_aligned;  // Each line of the matrix begins at a multiple of 16 bytes.
  // No epilogue, n is a multiple of 8, and so are all rows of C of 16 bytes.
  bool c_is_plain;
};

// A copy from one strided array to another, for operands that are no matrices in memory.
struct PackParameters {
  static constexpr int kDimensions = 8;
  const void* from;
  void* to;
  int64_t elements;
  int32_t dimensions;
  int64_t sizes[kDimensions];  // Outermost first.
  int64_t from_strides[kDimensions], to_strides[kDimensions];
};

}  // namespace tessera::cuda
