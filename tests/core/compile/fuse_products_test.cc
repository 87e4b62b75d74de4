// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "core/check/run_graph.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/fused_names.h"

namespace tessera {
namespace {

// The nodes of `build`'s graph in order, in loops too. The results must be those of the trace.
template <typename Build>
std::vector<std::string> products(Build build) {
  const Mesh mesh;
  const AxisRules rules;
  Graph graph;
  {
    const TraceScope trace(graph, mesh, rules);
    const auto made = [](const char* name, const char* type) {
      return input(name, InputKind::kBatch, parse_type(type));
    };
    build(made("x", "bf16[\"row=2 inner=3\"]"), made("w", "bf16[\"inner=3 column=4\"]"),
          made("y", "bf16[\"row=2 column=4\"]"), made("bias", "bf16[\"column=4\"]"));
  }
  const Graph result = fuse_products(lower(graph, mesh));
  verify(result, mesh);
  const ReferenceInputs inputs = sample_inputs(graph);
  const auto expected = evaluate(graph, inputs);
  for (const auto& [name, array] : evaluate(result, inputs))
    REQUIRE(array.values == expected.at(name).values);
  return fused_names(result);
}

using Names = std::vector<std::string>;

Tensor product(const Tensor& x, const Tensor& w) { return einsum(x, w, over("inner")); }

TEST_CASE("a product takes the cast of its result, and the sum with what is like it") {
  REQUIRE(products([](Tensor x, Tensor w, Tensor, Tensor) {
            output("z", cast(product(x, w), DType::kF32));
          }) == Names{"fused_product(einsum cast)"});
  REQUIRE(products([](Tensor x, Tensor w, Tensor y, Tensor) { output("z", y + product(x, w)); }) ==
          Names{"fused_product(einsum add)"});
  REQUIRE(products([](Tensor x, Tensor w, Tensor y, Tensor) {
            const Tensor wide = cast(y, DType::kF32);
            output("z", cast(product(x, w), DType::kF32) + wide);
          }) == Names{"cast", "fused_product(einsum cast add)"});
}

TEST_CASE("a product takes a bias, an activation and its gradient") {
  REQUIRE(products([](Tensor x, Tensor w, Tensor, Tensor bias) {
            output("z", gelu_tanh(product(x, w) + bias));
          }) == Names{"fused_product(einsum add gelu_tanh)"});
  REQUIRE(products([](Tensor x, Tensor w, Tensor y, Tensor) {
            output("z", silu_grad(y, product(x, w)));
          }) == Names{"fused_product(einsum silu_grad)"});
  // The product as the saved operand is not its dy.
  REQUIRE(products([](Tensor x, Tensor w, Tensor y, Tensor) {
            output("z", silu_grad(product(x, w), y));
          }) == Names{"einsum", "silu_grad"});
}

TEST_CASE("the operand of an activation is a second result if others read it") {
  REQUIRE(products([](Tensor x, Tensor w, Tensor y, Tensor) {
            const Tensor h = product(x, w);
            output("z", silu(h));
            output("slope", silu_grad(h, y));
          }) == Names{"fused_product(einsum silu)", "silu_grad"});
  REQUIRE(products([](Tensor x, Tensor w, Tensor, Tensor) {
            const Tensor h = product(x, w);
            output("h", h);
            output("z", silu(h));
          }) == Names{"fused_product(einsum silu)"});
  // A reader before the activation would not have it yet.
  REQUIRE(products([](Tensor x, Tensor w, Tensor, Tensor) {
            const Tensor h = product(x, w);
            output("y", exp(h));
            output("z", silu(h));
          }) == Names{"einsum", "exp", "silu"});
}

TEST_CASE("an activation that an elementwise node reads is left to their loop") {
  REQUIRE(products([](Tensor x, Tensor w, Tensor y, Tensor) {
            output("z", silu(product(x, w)) * y);
          }) == Names{"einsum", "silu", "mul"});
  // No loop contains a sum over a row.
  REQUIRE(products([](Tensor x, Tensor w, Tensor, Tensor) {
            output("z", reduce_sum(gelu_tanh(product(x, w)), "column"));
          }) == Names{"fused_product(einsum gelu_tanh)", "reduce_sum"});
}

TEST_CASE("a product that others read, or that is an output, stays as it is") {
  REQUIRE(products([](Tensor x, Tensor w, Tensor y, Tensor) {
            const Tensor h = product(x, w);
            output("z", h + y);
            output("h", h);
          }) == Names{"einsum", "add"});
  REQUIRE(products([](Tensor x, Tensor w, Tensor, Tensor) {
            const Tensor h = product(x, w);
            output("z", h + h);
          }) == Names{"einsum", "add"});
}

// All sums of a microbatch's gradients are traced after its backward pass.
TEST_CASE(
    "a product and a sum far behind it run where the product was, if all operands are there") {
  REQUIRE(products([](Tensor x, Tensor w, Tensor y, Tensor) {
            const Tensor h = product(x, w);
            output("w", exp(y));
            output("z", y + h);
          }) == Names{"fused_product(einsum add)", "exp"});
  REQUIRE(products([](Tensor x, Tensor w, Tensor y, Tensor) {
            const Tensor h = product(x, w);
            output("z", exp(y) + h);
          }) == Names{"exp", "fused_product(einsum add)"});
}

TEST_CASE("of two products that are added, the first takes the sum") {
  REQUIRE(products([](Tensor x, Tensor w, Tensor, Tensor) {
            const Tensor a = cast(product(x, w), DType::kF32);
            const Tensor b = cast(product(x * 2.0, w), DType::kF32);
            output("z", a + b);
          }) == Names{"scale", "fused_product(einsum cast)", "fused_product(einsum cast add)"});
}

TEST_CASE("a bias has the axes of a row of the matrix") {
  // Along a column it is neither a bias nor like the product.
  REQUIRE(products([](Tensor x, Tensor w, Tensor y, Tensor) {
            const Tensor column = einsum(y, y, over("column"));
            output("z", product(x, w) + column);
          }).back() == "add");
}

TEST_CASE("products in loop bodies take what follows them") {
  const Names names = products([](Tensor x, Tensor w, Tensor y, Tensor) {
    const RepeatResult result =
        repeat("steps", 2, {y}, {}, [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) {
          return RepeatBody{{carries[0] + product(x, w)}, {}};
        });
    output("z", result.carries[0]);
  });
  REQUIRE(names == Names{"fused_product(einsum add)"});
}

}  // namespace
}  // namespace tessera
