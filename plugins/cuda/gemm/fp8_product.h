// SPDX-License-Identifier: Apache-2.0
// Products of operands that are rounded to 8-bit floats (core/ops/fp8.h): both are written into the
// scratch as 8-bit floats with a scale each, then multiplied by cuBLASLt on the tensor cores of
// Ada, Hopper and newer GPUs, or by a kernel of our own that multiplies them as bf16. Sums are in
// f32.
#pragma once

#include <memory>

#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {

// The least compute capability whose tensor cores multiply 8-bit floats.
inline constexpr int kFp8Capability = 89;

// `shape` is that of the operands in bf16 or f32, and `formats` are those they are rounded to. The
// product takes ProductOperands::a_amax and b_amax.
std::unique_ptr<Product> make_fp8_product(Context& context, const ProductShape& shape,
                                          const Fp8Formats& formats,
                                          const ProductSettings& settings = product_settings());

}  // namespace tessera::cuda
