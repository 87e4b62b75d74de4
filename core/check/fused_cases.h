// SPDX-License-Identifier: Apache-2.0
// Test cases of products that fuse_products() fuses with their epilogues, for devices with such
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
  bool fp8 = false;            // Uses products of 8-bit floats instead of einsum.
};

// Returns each epilogue once; the first is a sum with an array.
std::vector<OpCase> fused_product_cases(const FusedProducts& products = {});

// Returns cases that unpack the result, and the operands whose layout it has.
std::vector<OpCase> fused_packed_cases();

}  // namespace tessera
