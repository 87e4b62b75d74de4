// SPDX-License-Identifier: Apache-2.0
// Every row of the op cases through passes, plan and CPU kernels, in f32 and bf16 and on each set
// of vector instructions, against the reference interpreter in double precision.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <hwy/targets.h>

#include "core/backend/cpu/device.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "tests/support/catch.h"
#include "tests/support/numeric_gradient.h"
#include "tests/support/op_cases.h"
#include "tests/support/run_graph.h"

namespace tessera {
namespace {

void trace_case(const OpCase& row, std::string_view dtype, const Mesh& mesh, Graph& graph) {
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  Tensors inputs;
  for (size_t i = 0; i < row.inputs.size(); ++i)
    inputs.push_back(input(fmt::format("x{}", i), InputKind::kBatch,
                           parse_type(type_with(row.inputs[i], dtype))));
  const Tensors results = row.build(inputs);
  for (size_t i = 0; i < results.size(); ++i) output(fmt::format("y{}", i), results[i]);
}

bool takes_floats(const OpCase& row) {
  return std::any_of(row.inputs.begin(), row.inputs.end(),
                     [](const std::string& type) { return type.starts_with("float"); });
}

// "" or the first element that is further off than `tolerance`, relative to the largest.
std::string disagreement(const std::vector<double>& got, const std::vector<double>& expected,
                         double tolerance) {
  double largest = 1e-3;
  for (const double value : expected)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool same = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]));
    if (same || std::abs(got[i] - expected[i]) <= tolerance * largest) continue;
    return fmt::format("element {}: got {}, expected {}", i, got[i], expected[i]);
  }
  return "";
}

// Calls `action` with each set of vector instructions this processor has.
template <typename Action>
void on_each_target(Action action) {
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    INFO("vectors of " << hwy::TargetName(targets & -targets));
    action();
  }
  hwy::SetSupportedTargetsForTest(0);
}

void check_rows(std::string_view dtype) {
  const auto device = make_cpu_device(2);
  const Mesh mesh = Mesh::standard({1, 1, 1});
  CompileOptions options;
  options.mesh = mesh;
  options.verify_passes = true;
  for (const OpCase& row : all_op_cases()) {
    if (dtype != "f32" && !takes_floats(row)) continue;
    Graph graph;
    trace_case(row, dtype, mesh, graph);
    const ReferenceInputs inputs = rounded(graph, sample_inputs(graph, row.ids));
    const auto expected = evaluate(graph, inputs, mesh);
    on_each_target([&] {
      for (const auto& [name, values] : run_graph(graph, inputs, *device, options)) {
        const Type& type = graph.type(graph.find_output(name)->value);
        INFO(row.op << " of " << fmt::format("{}", fmt::join(row.inputs, ", ")) << ", " << name
                    << " in " << dtype);
        const bool narrow = dtype == "bf16" || type.dtype == DType::kBF16;
        REQUIRE(disagreement(values, expected.at(name).values,
                             narrow ? row.tolerance_bf16 : row.tolerance_f32) == "");
      }
    });
  }
}

TEST_CASE("every op's CPU kernel in f32 agrees with the reference") { check_rows("f32"); }

TEST_CASE("every op's CPU kernel in bf16 agrees with the reference") { check_rows("bf16"); }

}  // namespace
}  // namespace tessera
