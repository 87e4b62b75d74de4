// SPDX-License-Identifier: Apache-2.0
// Products with experts that are split, or whose rows are: the values and gradients of one device,
// by the decomposition on each device, and the cost of a device's share.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/compile/autodiff/autodiff.h"
#include "core/compile/cost.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/grouped_product.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/simulated_mesh.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

struct Layout {
  std::string x, weights, ids;
};

// Two products, the second with a row for each choice, and the gradients of x and of both weights.
Graph traced(const Mesh& mesh, const Layout& layout) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kParameter, parse_type("f32[\"" + layout.x + "\"]"));
  const Type matrices = parse_type("f32[\"" + layout.weights + "\"]");
  const Tensor up = input("up", InputKind::kParameter, matrices);
  const Tensor gate = input("gate", InputKind::kParameter, matrices);
  const Tensor ids = input("ids", InputKind::kBatch, parse_type("i32[\"" + layout.ids + "\"]"));
  const Tensor hidden = reduced(grouped_product(x, up, ids, "experts", over("embed")));
  const Tensor y = reduced(grouped_product(square(hidden), gate, ids, "experts", over("mlp")));
  output("y", y);
  const Tensor total = place(reduce_sum(square(y)));
  const std::vector<Tensor> made = gradients(total, {x, up, gate});
  for (size_t i = 0; i < made.size(); ++i) output("gradient " + std::to_string(i), made[i]);
  return graph;
}

ReferenceInputs sample(const Graph& graph) {
  ReferenceInputs inputs;
  for (const GraphInput& each : graph.inputs()) {
    std::vector<double>& values = inputs[each.name];
    const int64_t count = graph.type(each.value).elements();
    // Some ids are of no expert.
    for (int64_t i = 0; i < count; ++i)
      values.push_back(each.name == "ids" ? static_cast<double>(i * i % 7 % 5)
                                          : std::sin(0.9 * static_cast<double>(i * (i + 1))));
  }
  return inputs;
}

TEST_CASE("split experts and rows have the values and gradients of one device") {
  const Mesh one = Mesh::standard({1, 1, 1}), many = Mesh::standard({2, 2, 2});
  const Layout layout = GENERATE(
      Layout{"batch=4 embed=6", "experts/mdl=4 embed=6 mlp=8", "batch=4 top_k=2"},
      Layout{"batch/data=4 embed=6", "experts/mdl/replica=4 embed=6 mlp=8", "batch/data=4 top_k=2"},
      Layout{"batch/replica/data=4 embed=6", "experts=4 embed=6 mlp/mdl=8",
             "batch/replica/data=4 top_k=2"},
      Layout{"batch/data=4 embed/mdl=6", "experts/replica=4 embed/mdl=6 mlp=8",
             "batch/data=4 top_k=2"},
      Layout{"batch=4 embed=6", "experts/data=4 embed=6 mlp=8", "batch=4 top_k/mdl=2"});
  CAPTURE(layout.x, layout.weights, layout.ids);
  const Graph alone = traced(one, layout), split = traced(many, layout);
  const ReferenceInputs inputs = sample(alone);
  const auto expected = evaluate(alone, inputs, one);
  const auto got = SimulatedMesh(split, many).run(inputs);
  REQUIRE(expected.size() == 4);
  for (const auto& [name, array] : expected) {
    INFO(name);
    const std::vector<double>& values = array.values;
    double error = 0.0, largest = 0.0;
    for (size_t i = 0; i < values.size(); ++i) {
      error = std::max(error, std::abs(got.at(name)[i] - values[i]));
      largest = std::max(largest, std::abs(values[i]));
    }
    REQUIRE(largest > 0.1);
    REQUIRE(error < 1e-12 * largest);
  }
}

double grouped_flops(const Graph& graph) {
  double flops = 0.0;
  for (const Node& node : graph.nodes())
    if (node.op == &kGroupedProductOp || node.op == &kGroupedOuterProductOp)
      flops += node_flops(graph, node);
  return flops;
}

TEST_CASE("a grouped product costs what its rows cost with one expert, and a shard its share") {
  const Mesh mesh = Mesh::standard({1, 1, 2});
  const Graph graph =
      traced(mesh, {"batch=4 embed=6", "experts/mdl=4 embed=6 mlp=8", "batch=4 top_k=2"});
  const double expected = 2.0 * 8 * 6 * 8 * 6;  // Six products of 8 rows with 6 × 8 elements.
  REQUIRE(grouped_flops(graph) == expected);
  REQUIRE(grouped_flops(SimulatedMesh(graph, mesh).lowered(1)) == expected / 2.0);
}

}  // namespace
}  // namespace tessera
