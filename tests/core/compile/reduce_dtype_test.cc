// SPDX-License-Identifier: Apache-2.0
// Mixed precision on a mesh: weights are gathered in the compute dtype; gradients are reduced in
// the policy's reduce dtype and not rounded afterwards.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/compile/autodiff/autodiff.h"
#include "core/compile/cost.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

struct Policy {
  DType param, compute, reduce;
};

const Mesh& mesh() {
  static const Mesh kMesh = Mesh::standard({2, 4, 1});
  return kMesh;
}

Tensor loss_of(const Tensor& w, const Tensor& x, const Policy& policy) {
  const Tensor placed = reshard(cast_weight(w, policy.compute, policy.reduce), "embed mlp");
  return reduce_sum(square(cast(einsum(x, placed, over("embed")), DType::kF32)), "batch mlp");
}

// The gradient of a weight stored in this layout, with examples split over replica and data.
Graph gradient_graph(const std::string& layout, const Policy& policy) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh(), rules);
  const Tensor w = input("w", InputKind::kParameter,
                         parse_type(fmt::format("{}[\"{}\"]", dtype_name(policy.param), layout)));
  const Tensor x = input(
      "x", InputKind::kBatch,
      parse_type(fmt::format("{}[\"batch/replica/data=8 embed=4\"]", dtype_name(policy.compute))));
  output("gradient", gradients(place(loss_of(w, x, policy)), {w})[0]);
  return graph;
}

// "all_gather(data) bf16", of weights and their gradients.
std::vector<std::string> weight_traffic(const Graph& traced) {
  std::vector<std::string> lines;
  for (const CollectiveUse& use : collectives(lower(traced, mesh(), 0, LinkCosts::bytes_only())))
    if (use.bytes > 16)  // Not the loss.
      lines.push_back(
          fmt::format("{}({}) {}", use.op, fmt::join(use.mesh_axes, ","), dtype_name(use.dtype)));
  return lines;
}

// The number of casts of a lowered gradient after its reduce-scatter.
int64_t casts_after_reduction(const Graph& traced) {
  const Graph graph = lower(traced, mesh(), 0, LinkCosts::bytes_only());
  int64_t casts = 0;
  for (ValueId value = graph.find_output("gradient")->value;;) {
    const Node& node = graph.node(graph.value(value).producer);
    if (node.op->name == "reduce_scatter") return casts;
    casts += node.op->name == "cast" ? 1 : 0;
    value = node.inputs[0];
  }
}

using Lines = std::vector<std::string>;
constexpr DType kWide = DType::kF32, kNarrow = DType::kBF16;

TEST_CASE("A bf16 weight is gathered in bf16 and its gradient is scattered in f32") {
  const Graph graph = gradient_graph("embed/data=4 mlp=16", {kWide, kNarrow, kWide});
  REQUIRE(weight_traffic(graph) ==
          Lines{"all_gather(data) bf16", "reduce_scatter(data) f32", "all_reduce(replica) f32"});
  REQUIRE(casts_after_reduction(graph) == 0);
}

TEST_CASE("The gradient of a replicated bf16 weight is reduced in f32") {
  REQUIRE(weight_traffic(gradient_graph("embed=4 mlp=16", {kWide, kNarrow, kWide})) ==
          Lines{"all_reduce(replica,data) f32"});
}

TEST_CASE("Gradients are reduced in bf16 if the policy says so") {
  REQUIRE(weight_traffic(gradient_graph("embed/data=4 mlp=16", {kWide, kNarrow, kNarrow})) ==
          Lines{"all_gather(data) bf16", "reduce_scatter(data) bf16", "all_reduce(replica) bf16"});
  REQUIRE(weight_traffic(gradient_graph("embed=4 mlp=16", {kWide, kNarrow, kNarrow})) ==
          Lines{"all_reduce(replica,data) bf16"});
  REQUIRE(weight_traffic(gradient_graph("embed=4 mlp=16", {kWide, kWide, kNarrow})) ==
          Lines{"all_reduce(replica,data) bf16"});
}

TEST_CASE("Gradients of weights stored in bf16 are reduced in f32") {
  REQUIRE(weight_traffic(gradient_graph("embed=4 mlp=16", {kNarrow, kNarrow, kWide})) ==
          Lines{"all_reduce(replica,data) f32"});
  REQUIRE(weight_traffic(gradient_graph("embed/data=4 mlp=16", {kNarrow, kNarrow, kWide})) ==
          Lines{"all_gather(data) bf16", "reduce_scatter(data) f32", "all_reduce(replica) f32"});
}

TEST_CASE("Gradients of a repeated layer are reduced in f32 in each iteration and not rounded") {
  Graph graph;
  {
    const AxisRules rules;
    const TraceScope trace(graph, mesh(), rules);
    const Tensor stack =
        input("w", InputKind::kParameter, parse_type("f32[\"layers=3 embed/data=4 mlp=4\"]"));
    const Tensor x =
        input("x", InputKind::kBatch, parse_type("bf16[\"batch/replica/data=8 embed=4\"]"));
    const Tensor y =
        repeat("layers", 3, {x}, {}, [&](Tensor, std::vector<Tensor> carries, auto) {
          const Tensor w = cast_weight(loop_slice(stack), kNarrow, kWide);
          const Tensor placed = reshard(w, "embed mlp");
          return RepeatBody{
              {rename(tanh(einsum(carries[0], placed, over("embed"))), "mlp", "embed")}, {}};
        }).carries[0];
    const Tensor loss = place(reduce_sum(square(cast(y, DType::kF32))));
    output("gradient", gradients(loss, {stack})[0]);
  }
  std::vector<std::string> lines;
  for (const CollectiveUse& use : collectives(lower(graph, mesh(), 0, LinkCosts::bytes_only())))
    if (use.bytes > 16)  // Not the loss.
      lines.push_back(fmt::format("{} x {}({}) {}", use.count, use.op,
                                  fmt::join(use.mesh_axes, ","), dtype_name(use.dtype)));
  // Gradients of all layers are reduced over replicas together.
  REQUIRE(lines == Lines{"3 x all_gather(data) bf16", "3 x reduce_scatter(data) f32",
                         "1 x all_reduce(replica) f32"});
}

TEST_CASE("A policy with one dtype adds no casts") {
  const Graph graph = gradient_graph("embed/data=4 mlp=16", {kWide, kWide, kWide});
  for (const Node& node : graph.nodes()) REQUIRE(!node.attributes.has(key::kReduce));
  REQUIRE(weight_traffic(graph) ==
          Lines{"all_gather(data) f32", "reduce_scatter(data) f32", "all_reduce(replica) f32"});
}

}  // namespace
}  // namespace tessera
