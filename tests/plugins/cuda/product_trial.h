// SPDX-License-Identifier: Apache-2.0
// What the tests of matrix products share: one product on a GPU, compared with sums of doubles on
// the host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/check/fused_cases.h"
#include "plugins/cuda/device/setting_words.h"
#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {

// GPU 0; each call makes another device.
std::unique_ptr<Device> make_gpu();

// All cases of fused products of one size.
std::vector<OpCase> fused_cases(bool fp8 = false);

// A dense product: row-major C with `pad` elements between rows, operands as `layouts` says ("nt":
// B transposed), each also with `pad` between its lines.
ProductShape dense_shape(DType input, DType output, int64_t m, int64_t n, int64_t k,
                         const std::string& layouts = "nn", int64_t pad = 0, int64_t batches = 1);

struct ProductResult {
  std::vector<double> c, saved;  // All elements of the extent, the padding too.
};

// Operands are random but the same on every call. They begin `offset` elements behind an address
// that is a multiple of 64 bytes.
ProductResult run_product(Device& device, const ProductShape& shape,
                          const ProductSettings& settings, int64_t offset = 0);
ProductResult expected_product(const ProductShape& shape);

// Every epilogue that the passes make.
std::vector<Epilogue> all_epilogues();

// "" or the first element that differs by more than rounding; padding must be as it was.
std::string product_difference(Device& device, const ProductShape& shape,
                               const ProductSettings& settings, int64_t offset = 0);

}  // namespace tessera::cuda
