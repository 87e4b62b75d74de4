// SPDX-License-Identifier: Apache-2.0
// Tests that ops that are declared linear (OpDef::linear_view, OpDef::linear) are: passes move them
// from a sum to its terms.
#include <string>
#include <vector>

#include "core/check/op_cases.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/op.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

bool is_linear(const OpDef& op) { return op.linear_view || op.linear; }

// An array like the type, with other values for each `factor`.
ReferenceArray sample(const Type& type, double factor) {
  ReferenceArray array{type.axes, {}};
  for (int64_t i = 0; i < type.elements(); ++i)
    array.values.push_back(factor * (1.0 + static_cast<double>(i * i % 7)) - 2.0);
  return array;
}

std::vector<double> result_of(const Graph& graph, const Node& node, const ReferenceArray& operand) {
  return evaluate_node(graph, node, {&operand})[0].values;
}

TEST_CASE("linear ops make of a sum the sum of what they make of its terms") {
  int checked = 0;
  for (const OpCase& row : all_op_cases()) {
    if (!is_linear(*row.op) || !takes_floats(row)) continue;
    CAPTURE(row.op->name);
    const Graph graph = traced_case(row, DType::kF32, Mesh());
    for (const Node& node : graph.nodes()) {
      if (node.op != row.op) continue;
      REQUIRE(node.inputs.size() == 1);
      const Type& type = graph.type(node.inputs[0]);
      const ReferenceArray a = sample(type, 1.0), b = sample(type, -0.75);
      ReferenceArray sum = a;
      for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += b.values[i];
      const std::vector<double> of_a = result_of(graph, node, a), of_b = result_of(graph, node, b);
      const std::vector<double> of_sum = result_of(graph, node, sum);
      for (size_t i = 0; i < of_sum.size(); ++i)
        REQUIRE(of_sum[i] == Approx(of_a[i] + of_b[i]).margin(1e-12));
      ++checked;
    }
  }
  REQUIRE(checked >= 8);
}

}  // namespace
}  // namespace tessera
