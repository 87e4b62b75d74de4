// SPDX-License-Identifier: Apache-2.0
// Runs one matrix product on a GPU and compares it with sums of doubles on the host. For gpu_check
// and the tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/check/op_cases.h"
#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {

// Products, by einsum or of 8-bit floats, that fuse_products() fuses with what follows them; the
// first is a sum of an array.
std::vector<OpCase> fused_cases(bool fp8 = false);

// GPU 0; each call makes another device.
std::unique_ptr<Device> make_gpu();

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

// The product of a layer's forward pass or one of its backward pass, for a batch of this many
// tokens. Their names: "124M up, forward".
struct ModelProduct {
  std::string name;
  ProductShape shape;
};
// Of weights of GPT-2 124M and 1558M and of a Llama of 1.3B, and of square ones; or of a tiny one.
std::vector<ModelProduct> model_products(int64_t tokens, bool tiny);

// Why a GPU does not compute a product: it has no tensor cores for 8-bit floats. "" if it does.
std::string why_no_product(Device& gpu, const ProductShape& shape);

// For sizes that the host cannot compute: "" or the first element at either end of C that differs
// from our own kernels' by more than rounding.
std::string difference_from_own(Device& device, const ProductShape& shape,
                                const ProductSettings& settings);

// Every epilogue that the passes make.
std::vector<Epilogue> all_epilogues();

// "" or the first element that differs by more than rounding; padding must be as it was.
std::string product_difference(Device& device, const ProductShape& shape,
                               const ProductSettings& settings, int64_t offset = 0);

}  // namespace tessera::cuda
