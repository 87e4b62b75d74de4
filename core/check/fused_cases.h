// SPDX-License-Identifier: Apache-2.0
// Test cases of products that fuse_products() fuses with what follows them, for devices with such
// kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/check/op_cases.h"

namespace tessera {

struct FusedProducts {
  int64_t m = 5, n = 9, k = 7;
  std::string layouts = "nn";  // "nt": the second operand is stored transposed.
  bool fp8 = false;            // Of 8-bit floats, in place of einsum.
};

// Each epilogue once; the first is a sum with an array.
std::vector<OpCase> fused_product_cases(const FusedProducts& products = {});

// The result is unpacked, and with it the operands like it.
std::vector<OpCase> fused_packed_cases();

}  // namespace tessera
