// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in fp8_product.cu.
#pragma once

#include <cstdint>

#include "core/ops/float8_format.h"
#include "plugins/cuda/gemm/product_parameters.h"

namespace tessera::cuda {

// fp8_quantize_…: an operand of a product as 8-bit floats with a scale for all of it. Row r, number
// d of the depth (along which the product sums) is at to[r · padded_depth + d]; beyond the depth
// are zeros, up to a multiple of 16 bytes.
struct QuantizeParameters {
  const void* from;  // bf16 or f32; lines along the depth (…_n) or along the rows (…_t).
  const void* amax;  // The largest |element|, a scalar of the same dtype.
  uint8_t* to;
  float* inverse_scale;  // The factor from the 8-bit floats to the values.
  int64_t batches, from_stride, to_stride;
  int64_t from_leading;
  int32_t rows, depth, padded_depth;
  int32_t lanes_shift;  // For …_n: 2^lanes_shift threads have a row.
  Float8Format format;
  bool aligned;  // Each line of `from` begins at a multiple of 16 bytes.
};

// fp8_quantize_…_t: a block brings so many rows and numbers of the depth into the other order.
inline constexpr int kQuantizeRows = 64, kQuantizeDepth = 128;

// The distance of the two inverse scales, in f32: cuBLASLt refuses a scale at an address that is
// not a multiple of 16 bytes (seen on an H100 with cuBLASLt 13.1).
inline constexpr int kScaleStride = 4;

// product_fp8_…: the products of 8-bit floats whose lines run along the depth.
struct Fp8Parameters {
  ProductParameters product;    // A and B point to 8-bit floats; k is a multiple of 16.
  const float* inverse_scales;  // Scale of A, and at kScaleStride that of B.
  Float8Format a, b;
};

}  // namespace tessera::cuda
