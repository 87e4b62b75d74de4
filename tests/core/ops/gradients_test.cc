// SPDX-License-Identifier: Apache-2.0
// The gradient of every op against finite differences in double precision, for each row of the op
// cases; every op must have a row.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include "core/check/numeric_gradient.h"
#include "core/check/op_cases.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/pipeline.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

// Central differences with step 1e-5: rounding 1e-11, curvature 1e-10 times third derivatives.
constexpr double kTolerance = 1e-7;

std::string input_name(size_t i) { return fmt::format("x{}", i); }

bool is_floating_type(const std::string& type) {
  return type.starts_with("float") || type.starts_with("f32");
}

// The sum of a row's results weighted by further inputs: a random projection.
Tensor projection(const Tensors& results) {
  Tensor total;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_floating(results[i].dtype())) continue;
    const Tensor y = cast(results[i], DType::kF32);
    const Tensor weights = input(fmt::format("weights {}", i), InputKind::kBatch, y.type());
    const Tensor part = reduce_sum(y * weights);
    total = total ? total + part : part;
  }
  return place(total);
}

// Loss and gradients of a row's floating inputs; the others are batch inputs.
Graph traced_case(const OpCase& row, const Mesh& mesh) {
  std::map<std::string, std::string> parameters;
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    if (is_floating_type(row.inputs[i]))
      parameters[input_name(i)] = type_with(row.inputs[i], "f32");
  }
  return trace_gradients(
      parameters,
      [&](const NamedTensors& named) {
        Tensors inputs;
        for (size_t i = 0; i < row.inputs.size(); ++i) {
          const auto parameter = named.find(input_name(i));
          inputs.push_back(parameter != named.end() ? parameter->second
                                                    : input(input_name(i), InputKind::kBatch,
                                                            parse_type(row.inputs[i])));
        }
        return projection(row.build(inputs));
      },
      mesh);
}

bool contains(const Graph& graph, const OpDef& op) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [&](const Node& node) { return node.op == &op; });
}

std::string described(const OpCase& row) {
  return fmt::format("{} of {}", row.op->name, fmt::join(row.inputs, ", "));
}

TEST_CASE("The gradient of every op agrees with finite differences") {
  const Mesh mesh = Mesh::standard({1, 1, 1});
  for (const OpCase& row : all_op_cases()) {
    if (!row.differentiable) continue;
    INFO(described(row));
    const Graph graph = traced_case(row, mesh);
    verify(graph, mesh);
    REQUIRE(contains(graph, *row.op));
    if (row.op == &kStopGradientOp) continue;  // By definition it has no gradient.
    REQUIRE(gradient_error(graph, mesh) < kTolerance);
  }
}

// Each with the reason.
std::map<const OpDef*, std::string> ops_without_cases() {
  const std::string lowering = "made by lowering; tests/core/compile";
  return {{&kCopyOp, "made by memory planning; tests/core/compile"},
          {&kAllGatherOp, lowering},
          {&kReduceScatterOp, lowering},
          {&kAllReduceOp, lowering},
          {&kAllToAllOp, lowering},
          {&kPermuteOp, lowering},
          {&kMaskToOwnerOp, lowering},
          {&kPipelineOp, "made by the stages of a pipeline; tests/core/compile, tests/experiments"},
          {&kSendOp, "made by the stages of a pipeline; tests/core/runtime"},
          {&kReceiveOp, "made by the stages of a pipeline; tests/core/runtime"},
          {&kFusedOp, "made by the fusion pass of elementwise ops with cases; tests/core/compile"},
          {&kFusedProductOp, "made by the fusion pass of products; tests/core/compile"},
          {&kFusedNormOp, "made by the fusion pass of norms; tests/core/compile"},
          {&kFusedUpdatesOp, "made by the fusion pass of updates; tests/core/compile"}};
}

TEST_CASE("Every op has a row in the op cases, or a reason not to") {
  std::set<const OpDef*> covered;
  for (const OpCase& row : all_op_cases()) covered.insert(row.op);
  for (const auto& [op, reason] : ops_without_cases()) {
    INFO(op->name << " has a row, so needs no reason");
    REQUIRE(covered.insert(op).second);
  }
  for (const OpDef* op : all_ops()) {
    INFO("op '" << op->name << "' has no case in core/check/op_cases_*.cc");
    REQUIRE(covered.count(op) == 1);
  }
}

}  // namespace
}  // namespace tessera
