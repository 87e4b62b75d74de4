// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests of matrix products: one product on a GPU, compared with f64 sums on the
// host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/check/op_cases.h"
#include "plugins/cuda/device/setting_words.h"
#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {

// Makes a device of GPU 0. Each call makes another one.
std::unique_ptr<Device> make_gpu();

// Returns all cases of fused products of one size.
std::vector<OpCase> fused_cases(bool fp8 = false);

// Returns the shape of a dense product: row-major C with `pad` elements between rows, and operands
// in these layouts ("nt": B transposed), also with `pad` elements between lines.
ProductShape dense_shape(DType input, DType output, int64_t m, int64_t n, int64_t k,
                         const std::string& layouts = "nn", int64_t pad = 0, int64_t batches = 1);

struct ProductResult {
  std::vector<double> c, saved;  // All elements of the extent, with padding.
};

// Runs a product on operands that are random but equal in every call. They begin `offset` elements
// after an address that is a multiple of 64 bytes.
ProductResult run_product(Device& device, const ProductShape& shape,
                          const ProductSettings& settings, int64_t offset = 0);
ProductResult expected_product(const ProductShape& shape);

// Returns every epilogue that the passes make.
std::vector<Epilogue> all_epilogues();

// Returns the first element that differs by more than rounding, or "". Padding must not change.
std::string product_difference(Device& device, const ProductShape& shape,
                               const ProductSettings& settings, int64_t offset = 0);

}  // namespace tessera::cuda
