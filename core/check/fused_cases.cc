// SPDX-License-Identifier: Apache-2.0
// The cases of fused products (op_cases.h).
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "core/check/op_cases.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"
#include "core/ops/reshard.h"

namespace tessera {

std::vector<OpCase> fused_product_cases(const FusedProducts& products) {
  const bool fp8 = products.fp8;
  const std::string m = fmt::format("m={}", products.m), n = fmt::format("n={}", products.n),
                    k = fmt::format("k={}", products.k);
  const auto matrix = [](const std::string& dtype, std::string rows, std::string columns,
                         bool transposed = false) {
    if (transposed) std::swap(rows, columns);
    return fmt::format("{}[\"{} {}\"]", dtype, rows, columns);
  };
  const std::string x = matrix("float", m, k, products.layouts[0] == 't'),
                    w = matrix("float", k, n, products.layouts[1] == 't'),
                    y = matrix("float", m, n), bias = fmt::format("float[\"{}\"]", n),
                    wide = matrix("f32", m, n);
  const auto product = [fp8](const Tensors& in) {
    return fp8 ? fp8_product(in[0], in[1], over("k")) : einsum(in[0], in[1], over("k"));
  };
  std::vector<std::function<Tensors(const Tensors&)>> builds = {
      [=](const Tensors& in) -> Tensors { return {product(in) + in[2]}; },
      [=](const Tensors& in) -> Tensors { return {product(in) + in[3]}; },
      [=](const Tensors& in) -> Tensors { return {cast(product(in), DType::kF32) + in[4]}; },
      [=](const Tensors& in) -> Tensors { return {gelu_tanh(product(in) + in[3])}; },
      [=](const Tensors& in) -> Tensors {
        const Tensor h = product(in) + in[3];
        return {silu(h), h};
      },
      [=](const Tensors& in) -> Tensors { return {silu_grad(in[2], product(in))}; },
      [=](const Tensors& in) -> Tensors { return {gelu_tanh_grad(in[2], product(in))}; },
      [=](const Tensors& in) -> Tensors {
        const Tensor h =
            fp8 ? fp8_product(in[1], in[0], over("k")) : einsum("m k, k n -> n m", in[0], in[1]);
        return {gelu_tanh(h), h};
      },
  };
  std::vector<OpCase> rows;
  const OpDef& op = fp8 ? static_cast<const OpDef&>(kFp8ProductOp) : kEinsumOp;
  for (auto& build : builds)
    rows.push_back({.op = &op, .inputs = {x, w, y, bias, wide}, .build = std::move(build)});
  if (fp8)
    for (OpCase& row : rows) row.tolerance_f32_of_kernel = kFp8KernelTolerance;
  return rows;
}

std::vector<OpCase> fused_packed_cases() {
  std::vector<OpCase> rows;
  // Unpacks the result, and the operands whose layout it has.
  const std::vector<std::string> packed = {
      "float[\"b=2 m=3 p=4 k=5\"]", "float[\"b=2 n=6 p=4 k=5\"]", "float[\"m=3 b=2 n=6 p=4\"]"};
  const std::string equation = "b m p k, b n p k -> m b n p";
  rows.push_back({.op = &kEinsumOp, .inputs = packed, .build = [=](const Tensors& in) -> Tensors {
                    return {einsum(equation, in[0], in[1]) + in[2]};
                  }});
  rows.push_back({.op = &kEinsumOp, .inputs = packed, .build = [=](const Tensors& in) -> Tensors {
                    const Tensor h = einsum(equation, in[0], in[1]);
                    return {silu(h), h};
                  }});
  rows.push_back({.op = &kEinsumOp, .inputs = packed, .build = [=](const Tensors& in) -> Tensors {
                    return {silu_grad(in[2], einsum(equation, in[0], in[1]))};
                  }});
  return rows;
}

}  // namespace tessera
