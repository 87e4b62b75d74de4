// SPDX-License-Identifier: Apache-2.0
#include "core/compile/fuse/fuse.h"

#include <string>
#include <vector>

#include "core/check/numeric_gradient.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

// The lowered and fused graph of `build`; its results are compared with those of the trace.
template <typename Build>
Graph fused(Build build) {
  const Mesh mesh;
  const AxisRules rules;
  Graph graph;
  {
    const TraceScope trace(graph, mesh, rules);
    build(input("x", InputKind::kBatch, parse_type("f32[\"row=2 column=3\"]")),
          input("y", InputKind::kBatch, parse_type("f32[\"row=2 column=3\"]")));
  }
  const Graph result = fuse(lower(graph, mesh));
  verify(result, mesh);
  const ReferenceInputs inputs = sample_inputs(graph);
  const auto expected = evaluate(graph, inputs);
  for (const auto& [name, array] : evaluate(result, inputs))
    REQUIRE(array.values == expected.at(name).values);
  return result;
}

// "fused(mul exp)", "reduce_sum", … of each node in order.
std::vector<std::string> launches(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    std::string name(node.op->name);
    if (name == "fused") {
      std::string inner;
      for (const Node& each : node.bodies[0]->nodes())
        inner += (inner.empty() ? "" : " ") + std::string(each.op->name);
      name += "(" + inner + ")";
    }
    names.push_back(name);
  }
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE("A chain of elementwise ops is one launch") {
  const Graph graph = fused([](Tensor x, Tensor y) { output("z", exp(x * y) - x); });
  REQUIRE(launches(graph) == Names{"fused(mul exp sub)"});
  REQUIRE(graph.nodes().front().inputs.size() == 2);
}

TEST_CASE("Values with other readers are further outputs of the fused loop") {
  const Graph graph = fused([](Tensor x, Tensor y) {
    const Tensor h = x * y;
    output("z", exp(h));
    output("h", h);
    output("s", reduce_sum(h));
  });
  REQUIRE(launches(graph) == Names{"fused(mul exp)", "reduce_sum"});
  REQUIRE(graph.nodes().front().outputs.size() == 2);
}

TEST_CASE("Generators and broadcasts are computed in each fused loop that reads them") {
  const Graph graph = fused([](Tensor x, Tensor y) {
    const Tensor two = constant(2.0, DType::kF32);
    const Tensor row = cast(iota(Axis{"column", 3, {}}), DType::kF32);
    const Tensor wide = broadcast(row, {Axis{"row", 2, {}}}, "row column");
    const Tensor a = x * two + wide;
    output("z", reduce_sum(a, "row") * two);
    output("w", a * y);
  });
  REQUIRE(launches(graph) == Names{"fused(iota cast)", "fused(broadcast constant mul add mul)",
                                   "reduce_sum", "fused(constant mul)"});
}

TEST_CASE("Loops that read the same array are merged") {
  const Graph graph = fused([](Tensor x, Tensor y) {
    output("a", exp(x));
    output("b", x * y);
  });
  REQUIRE(launches(graph) == Names{"fused(exp mul)"});
}

TEST_CASE("A group does not span a node that depends on it and feeds it") {
  const Graph graph = fused([](Tensor x, Tensor y) {
    const Tensor h = exp(x * y);
    const Tensor mean = reduce_mean(h, "column");  // Depends on the first and feeds the second.
    output("z", h - mean);
  });
  REQUIRE(launches(graph) == Names{"fused(mul exp)", "reduce_sum", "scale", "sub"});
}

TEST_CASE("Groups that would depend on each other are not merged") {
  const Graph graph = fused([](Tensor x, Tensor y) {
    const Tensor a = exp(x), b = sin(y);
    const Tensor from_a = reduce_sum(a), from_b = reduce_sum(b);
    output("p", a * from_b);
    output("q", b * from_a);
    output("r", exp(b) + cos(a));
  });
  REQUIRE(launches(graph).size() >= 4);
}

TEST_CASE("Different iteration spaces, axis orders and phases are not fused") {
  const Graph graph = fused([](Tensor x, Tensor y) {
    const Tensor turned = transpose(x, "column row");
    output("a", exp(turned));
    const Tensor h = x + y;
    const PhaseScope backward(Phase::kBackward);
    output("b", sin(h));
  });
  REQUIRE(launches(graph) == Names{"transpose", "exp", "add", "sin"});
}

TEST_CASE("Bodies of loops are fused separately") {
  const Graph graph = fused([](Tensor x, Tensor y) {
    const RepeatResult result =
        repeat("layers", 2, {x}, {}, [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) {
          return RepeatBody{{tanh(carries[0] * y)}, {}};
        });
    output("z", result.carries[0]);
  });
  REQUIRE(launches(graph) == Names{"repeat"});
  REQUIRE(launches(*graph.nodes().front().bodies[0]) == Names{"fused(mul tanh)"});
}

}  // namespace
}  // namespace tessera
