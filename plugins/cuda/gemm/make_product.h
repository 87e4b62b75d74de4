// SPDX-License-Identifier: Apache-2.0
// Chooses between cuBLASLt and our own kernels for a matrix product.
#pragma once

#include <memory>

#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {

// The product of these settings. Error in terms of the user if cuBLASLt was asked for and is not
// usable.
std::unique_ptr<Product> make_product(Context& context, const ProductShape& shape,
                                      const ProductSettings& settings = product_settings());

}  // namespace tessera::cuda
