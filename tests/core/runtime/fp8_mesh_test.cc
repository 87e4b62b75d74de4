// SPDX-License-Identifier: Apache-2.0
// 8-bit products on meshes: operands and cotangents have the scale of the whole tensor, so that all
// devices together compute what one device computes.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/compile/autodiff/autodiff.h"
#include "core/devices/reference/array.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/executor.h"
#include "tests/support/catch.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

using Values = std::vector<double>;
constexpr int64_t kRows = 8, kColumns = 12;

// The later rows are so small that they are subnormal at the scale of the earlier rows, and normal
// at a scale of their own.
Values values_of(int64_t columns, int small_exponent, int seed) {
  Values values;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      values.push_back(std::ldexp(std::sin(static_cast<double>(seed + 31 * row + 7 * column)),
                                  row < kRows / 2 ? 0 : small_exponent));
  return values;
}

// A product, and its gradient with the cotangent dy.
Graph trace_product(const Mesh& mesh, const std::string& x_layout, const std::string& w_layout) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const auto state = [](const char* name, const std::string& layout, int64_t columns) {
    Type type = parse_layout(layout);
    type.dtype = DType::kF32;
    type.axes[0].size = kRows;
    type.axes[1].size = columns;
    return input(name, InputKind::kState, type);
  };
  const Tensor x = state("x", x_layout, kRows), w = state("w", w_layout, kColumns);
  const Tensor y = place(fp8_product(x, w, over("embed")));
  Type whole = y.type();
  const Tensor dy = reshard(state("dy", "batch mlp", kColumns), whole);
  const std::vector<Tensor> gradient = gradients(reduced(reduce_sum(y * dy)), {x, w});
  output("y", y);
  output("dx", gradient[0]);
  output("dw", gradient[1]);
  return graph;
}

std::map<std::string, Values> computed(const Mesh& mesh, const std::string& x_layout,
                                       const std::string& w_layout) {
  const Graph graph = trace_product(mesh, x_layout, w_layout);
  const auto devices = make_test_devices(mesh.num_devices(), 1);
  const auto communicator = make_test_communicator({.local_devices = mesh.num_devices()});
  Executor executor(pointers(devices), *communicator);
  CompileOptions options;
  options.mesh = mesh;
  options.verify_passes = true;
  const int program = executor.add_program(graph, options);
  executor.allocate();
  const auto write = [&](const char* name, const Values& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    encode_values(DType::kF32, values, bytes.data());
    executor.write_state(name, bytes);
  };
  write("x", values_of(kRows, -15, 1));
  write("w", values_of(kColumns, -15, 2));
  write("dy", values_of(kColumns, -29, 3));
  executor.run(program);
  std::map<std::string, Values> results;
  for (const std::string name : {"y", "dx", "dw"}) {
    const Type& type = graph.type(graph.find_output(name)->value);
    std::vector<std::byte> bytes(static_cast<size_t>(type.elements()) * sizeof(float));
    executor.read_output(program, name, bytes);
    results[name] = decode_values(type, bytes.data());
  }
  return results;
}

TEST_CASE("an 8-bit product has the scale of the whole tensor, however it is split") {
  const auto expected = computed(Mesh({{"data", 1}, {"mdl", 1}}), "batch embed", "embed mlp");
  const Mesh square({{"data", 2}, {"mdl", 2}});
  const std::vector<std::pair<std::string, std::string>> layouts = {
      {"batch/data embed", "embed mlp"},
      {"batch/data embed", "embed mlp/mdl"},
      {"batch/data embed/mdl", "embed/mdl mlp"},
      {"batch embed/data/mdl", "embed/data/mdl mlp"}};
  for (const Mesh& mesh :
       {square, Mesh({{"data", 4}, {"mdl", 1}}), Mesh({{"data", 1}, {"mdl", 4}})})
    for (const auto& [x, w] : layouts) {
      const auto got = computed(mesh, x, w);
      for (const auto& [name, values] : expected)
        for (size_t i = 0; i < values.size(); ++i) {
          CAPTURE(mesh.text(), x, w, name, i);
          // Sums of a few terms in another order; rounding at another scale changes much more.
          REQUIRE(got.at(name)[i] == Approx(values[i]).epsilon(1e-3).margin(1e-12));
        }
    }
}

}  // namespace
}  // namespace tessera
