// SPDX-License-Identifier: Apache-2.0
// The reference interpreter against numbers computed by hand.
#include "core/devices/reference/interpreter.h"

#include <cmath>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

// Runs `build` on x["row=2 column=3"] = 1 … 6 and returns its values.
template <typename Build>
Values on_two_by_three(Build build) {
  const Mesh mesh;
  const AxisRules rules;
  Graph graph;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"row=2 column=3\"]"));
  output("y", build(x));
  return evaluate(graph, {{"x", {1, 2, 3, 4, 5, 6}}}).at("y").values;
}

TEST_CASE("elementwise operands align by axis name") {
  const Values sums = on_two_by_three([](Tensor x) {
    return x + cast(iota({"row", 2, {}}), DType::kF32) * 10.0;
  });
  REQUIRE(sums == Values{1, 2, 3, 14, 15, 16});
}

TEST_CASE("einsum contracts the named axis and orders the axes of its result") {
  const auto gram = [](Tensor x) {
    return einsum("row column, other column -> other row", x, rename(x, "row", "other"));
  };
  REQUIRE(on_two_by_three(gram) == Values{14, 32, 32, 77});
}

TEST_CASE("reductions, transposition, slices and padding follow their axes") {
  REQUIRE(on_two_by_three([](Tensor x) { return reduce_sum(x, "row"); }) == Values{5, 7, 9});
  REQUIRE(on_two_by_three([](Tensor x) { return reduce_max(x, "column"); }) == Values{3, 6});
  REQUIRE(on_two_by_three([](Tensor x) { return transpose(x, "column row"); }) ==
          Values{1, 4, 2, 5, 3, 6});
  REQUIRE(on_two_by_three([](Tensor x) { return slice(x, "column", 1, 3); }) == Values{2, 3, 5, 6});
  REQUIRE(on_two_by_three([](Tensor x) { return pad(x, "row", 1, 0); }) ==
          Values{0, 0, 0, 1, 2, 3, 4, 5, 6});
  REQUIRE(on_two_by_three([](Tensor x) { return shift_right(x, "column", 9.0); }) ==
          Values{9, 1, 2, 9, 4, 5});
  REQUIRE(on_two_by_three([](Tensor x) {
            return concat({x, x}, "row");
          }) == Values{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
}

TEST_CASE("gather, scatter_add and pick select by id") {
  const auto ids = [] { return iota({"token", 2, {}}); };
  REQUIRE(on_two_by_three([&](Tensor x) { return gather(x, ids(), "row"); }) ==
          Values{1, 2, 3, 4, 5, 6});
  REQUIRE(on_two_by_three([&](Tensor x) {
            const Tensor zeros = cast(scale(cast(ids(), DType::kF32), 0.0), DType::kI32);
            return scatter_add(rename(x, "row", "token"), zeros, {"vocab", 2, {}});
          }) == Values{5, 7, 9, 0, 0, 0});
  REQUIRE(on_two_by_three([&](Tensor x) {
            return pick(rename(x, "row", "token"), ids(), "column");
          }) == Values{1, 5});
}

TEST_CASE("a composite op runs through its decomposition") {
  const Values y = on_two_by_three([](Tensor x) { return silu(x); });
  REQUIRE(y[2] == Approx(3.0 / (1.0 + std::exp(-3.0))).epsilon(1e-15));
}

TEST_CASE("a missing or short input is named") {
  const Mesh mesh;
  const AxisRules rules;
  Graph graph;
  const TraceScope trace(graph, mesh, rules);
  output("y", neg(input("x", InputKind::kBatch, parse_type("f32[\"row=2\"]"))));
  CHECK_THROWS_WITH(evaluate(graph, {}), "the reference interpreter got no input 'x'");
  CHECK_THROWS_WITH(evaluate(graph, {{"x", {1.0}}}),
                    "input 'x' has 1 elements, expected 2 for f32[\"row=2\"]");
}

}  // namespace
}  // namespace tessera
