// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/calibrate/calibration_cases.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/compile/fuse/fuse.h"
#include "core/graph/mesh.h"
#include "core/graph/op.h"
#include "core/graph/rules.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/order.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

BenchSizes sizes_of(CalibrationSize size) {
  if (size == CalibrationSize::kQuick)
    return {.batch = 2,
            .seq = 16,
            .embed = 64,
            .vocab = 264,
            .loss_rows = 32,
            .weights = 4096,
            .routed_rows = 64,
            .experts = 4,
            .expert_embed = 32,
            .expert_mlp = 64,
            .attention = {{1, 32, 2, 2, 16}, {1, 32, 2, 2, 32}},
            .recurrences = {{1, 32, 2, 16, 16}}};
  return {.batch = 8,
          .seq = 256,
          .embed = 256,
          .vocab = 8192,
          .loss_rows = 512,
          .weights = 1 << 19,
          .routed_rows = 2048,
          .experts = 8,
          .expert_embed = 256,
          .expert_mlp = 512,
          .attention = {{4, 256, 4, 4, 32},
                        {4, 256, 4, 4, 64},
                        {2, 512, 4, 4, 64},
                        {2, 256, 4, 2, 128}},
          .recurrences = {{2, 256, 4, 64, 64}}};
}

// Cases on x["row embed"] and an equal y. Data movement is priced by its bytes alone.
void add_cases(std::vector<BenchCase>& cases, const std::string& dtype, const BenchSizes& s) {
  const std::string axes = fmt::format("[\"row={} embed={}\"]", s.batch * s.seq, s.embed);
  using Trace = std::function<void(const Tensors&)>;
  const auto add = [&](const char* name, const Trace& trace) {
    cases.push_back({fmt::format("{}/{}", name, dtype),
                     {dtype + axes, dtype + axes},
                     trace,
                     /*gradient=*/false});
  };
  const DType own = dtype == "bf16" ? DType::kBF16 : DType::kF32;
  add("add", [](const Tensors& in) { in[0] + in[1]; });
  add("mul", [](const Tensors& in) { in[0] * in[1]; });
  add("div", [](const Tensors& in) { in[0] / in[1]; });
  add("scale", [](const Tensors& in) { scale(in[0], 0.5); });
  add("exp", [](const Tensors& in) { exp(in[0]); });
  add("tanh", [](const Tensors& in) { tanh(in[0]); });
  add("relu", [](const Tensors& in) { relu(in[0]); });
  add("relu_grad", [](const Tensors& in) { relu_grad(in[0], in[1]); });
  add("gelu", [](const Tensors& in) { gelu(in[0]); });
  add("gelu_grad", [](const Tensors& in) { gelu_grad(in[0], in[1]); });
  add("gelu_tanh", [](const Tensors& in) { gelu_tanh(in[0]); });
  add("gelu_tanh_grad", [](const Tensors& in) { gelu_tanh_grad(in[0], in[1]); });
  add("silu", [](const Tensors& in) { silu(in[0]); });
  add("silu_grad", [](const Tensors& in) { silu_grad(in[0], in[1]); });
  add("sigmoid", [](const Tensors& in) { sigmoid(in[0]); });
  add("fused/sum", [](const Tensors& in) { (in[0] + in[1]) + in[0] * in[1]; });
  add("fused/gate", [](const Tensors& in) { silu(in[0]) * in[1]; });
  add("fused/gate gradient",
      [](const Tensors& in) { silu_grad(in[0], in[1] * in[0]) + in[1] * silu(in[0]); });
  add("fused/gelu", [](const Tensors& in) { gelu_tanh(in[0] + in[1]); });
  add("reduce_sum", [](const Tensors& in) { reduce_sum(in[0], "embed"); });
  add("reduce_sum of rows", [](const Tensors& in) { reduce_sum(in[0], "row"); });
  add("reduce_max", [](const Tensors& in) { reduce_max(in[0], "embed"); });
  add("squared_norm", [](const Tensors& in) { squared_norm({in[0]}); });
  add("softmax", [](const Tensors& in) { softmax(in[0], "embed"); });
  add("sort", [](const Tensors& in) { sort(in[0], "embed"); });
  const DType other = own == DType::kBF16 ? DType::kF32 : DType::kBF16;
  add("cast", [other](const Tensors& in) { cast(in[0], other); });
}

}  // namespace

std::vector<BenchCase> calibration_cases(CalibrationSize size) {
  const BenchSizes sizes = sizes_of(size);
  std::vector<BenchCase> cases = bench_cases(sizes);
  std::erase_if(cases,
                [](const BenchCase& each) { return each.name.starts_with("dense product"); });
  for (const char* dtype : {"f32", "bf16"}) add_cases(cases, dtype, sizes);
  return cases;
}

Graph calibration_graph(const BenchCase& row) { return fuse(traced_bench(row)); }

std::vector<ProductShape> calibration_products(CalibrationSize size) {
  if (size == CalibrationSize::kQuick) return {{64, 64, 64}, {32, 128, 64}, {256, 32, 32}};
  std::vector<ProductShape> shapes;
  // Rows of a batch, widths of models.
  for (const int64_t m : {64, 512, 2048})
    for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{{32, 64},
                                                                       {64, 64},
                                                                       {64, 256},
                                                                       {256, 64},
                                                                       {128, 512},
                                                                       {512, 128},
                                                                       {256, 256},
                                                                       {1024, 256},
                                                                       {256, 1024},
                                                                       {512, 2048},
                                                                       {2048, 512},
                                                                       {8192, 256}})
      shapes.push_back({m, n, k});
  // Gradients of weights: sums over rows.
  for (const int64_t k : {1024, 4096})
    for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{
             {64, 64}, {64, 256}, {128, 512}, {256, 256}, {256, 1024}, {1024, 256}, {8192, 256}})
      shapes.push_back({m, n, k});
  shapes.push_back({1024, 1024, 1024});
  return shapes;
}

Graph product_graph(const ProductShape& shape, DType dtype) {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const bool is_gradient = shape.k >= 1024 && shape.k > std::min(shape.m, shape.n);
  const auto array = [&](const char* name, const char* first, int64_t rows, const char* second,
                         int64_t columns) {
    return input(name, InputKind::kBatch,
                 make_type(dtype, {{first, rows, {}}, {second, columns, {}}}));
  };
  const Tensor x = is_gradient ? array("x", "sum", shape.k, "row", shape.m)
                               : array("x", "row", shape.m, "sum", shape.k);
  const Tensor w = array("w", "sum", shape.k, "column", shape.n);
  output("y", einsum(x, w, over("sum")));
  return graph;
}

std::vector<Graph> collective_graphs(const OpDef& op, int64_t devices, int64_t bytes) {
  const int64_t part_elements = bytes / dtype_bytes(DType::kF32) / devices;
  const Type whole = make_type(DType::kF32, {{"x", part_elements * devices, {}}});
  const Type part = make_type(DType::kF32, {{"x", part_elements, {}}});
  std::vector<int64_t> group(static_cast<size_t>(devices));
  std::iota(group.begin(), group.end(), 0);
  std::vector<Graph> graphs(group.size());
  for (const int64_t device : group) {
    Graph& graph = graphs[static_cast<size_t>(device)];
    Node node{.op = &op, .inputs = {ValueId(0)}};
    node.attributes = {
        {key::kAxis, "x"}, {key::kMeshAxes, {"data"}}, {key::kGroup, group}, {key::kIndex, device}};
    graph.add_input("x", InputKind::kBatch, &op == &kAllGatherOp ? part : whole);
    graph.add_node(node, {&op == &kReduceScatterOp ? part : whole});
  }
  return graphs;
}

Graph copy_graph(int64_t bytes) {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const int64_t columns = 64, elements = bytes / 2 / dtype_bytes(DType::kF32);
  const Type type = make_type(DType::kF32, {{"row", std::max<int64_t>(1, elements / columns), {}},
                                            {"column", columns, {}}});
  output("y", scale(input("x", InputKind::kBatch, type), 0.5));
  return graph;
}

}  // namespace tessera
