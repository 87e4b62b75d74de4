// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "core/check/run_graph.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "tests/support/catch.h"
#include "tests/support/fused_names.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;
const std::string kRows = "bf16[\"row=2 embed=3\"]";

// `build`'s graph after the pass. The results must be those of the trace.
template <typename Build>
Graph after_pass(Build build) {
  Trial trial(Mesh(), {kRows, kRows, kRows, "f32[\"embed=3\"]"});
  const std::vector<Tensor>& in = trial.inputs();
  build(in[0], in[1], in[2], in[3]);
  const Graph result = fuse_norms(lower(trial.graph(), Mesh()));
  verify(result, Mesh());
  const ReferenceInputs inputs = sample_inputs(trial.graph());
  const auto expected = evaluate(trial.graph(), inputs);
  for (const auto& [name, array] : evaluate(result, inputs))
    REQUIRE(array.values == expected.at(name).values);
  return result;
}
template <typename Build>
Names fused(Build build) {
  return fused_names(after_pass(build));
}

Tensor norm(const Tensor& x, const Tensor& scale) { return rms_norm(x, scale, "embed", 1e-5); }

// dx of the norm, whose cotangent is the input "dy".
Tensor norm_gradient(const Tensor& x, const Tensor& scale) {
  layer_norm(x, scale, {}, "embed", 1e-5);
  return traced_gradient(traced_graph(), Node(traced_graph().nodes().back()))[0];
}

TEST_CASE("a norm takes the sum before it, which others may read later") {
  const Names both = {"fused_norm(add rms_norm)"};
  REQUIRE(fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
            output("z", norm(x + y, scale));
          }) == both);
  REQUIRE(fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
            const Tensor sum = x + y;
            output("z", norm(sum, scale));
            output("sum", sum);
          }) == both);
  REQUIRE(fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
            const Tensor sum = x + y;
            output("z", norm(sum, scale));
            output("w", exp(sum));
          }) == Names{"fused_norm(add rms_norm)", "exp"});
}

TEST_CASE("the sum is stored only if others than the norm read it") {
  const auto results = [](bool is_read) {
    const Graph graph = after_pass([&](Tensor x, Tensor y, Tensor, Tensor scale) {
      const Tensor sum = x + y;
      output("z", norm(sum, scale));
      if (is_read) output("w", exp(sum));
    });
    return graph.nodes().front().outputs.size();
  };
  const size_t of_norm =
      after_pass([](Tensor x, Tensor, Tensor, Tensor scale) { output("z", norm(x, scale)); })
          .nodes()
          .front()
          .outputs.size();
  REQUIRE(results(false) == of_norm);
  REQUIRE(results(true) == of_norm + 1);
}

TEST_CASE("a sum that others read before the norm stays where it is") {
  REQUIRE(fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
            const Tensor sum = x + y;
            output("w", exp(sum));
            output("z", norm(sum, scale));
          }) == Names{"add", "exp", "rms_norm"});
}

TEST_CASE("of two norms of a sum the first takes it") {
  REQUIRE(fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
            const Tensor sum = x + y;
            output("z", norm(sum, scale));
            output("w", layer_norm(sum, scale, {}, "embed", 1e-5));
          }) == Names{"fused_norm(add rms_norm)", "layer_norm"});
  REQUIRE(fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
            output("z", norm(norm_gradient(x, scale) + y, scale));
          }) == Names{"layer_norm", "fused_norm(layer_norm_grad add)", "rms_norm"});
}

TEST_CASE("a sum stays in the loop of the elementwise node that makes an operand of it") {
  REQUIRE(fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
            output("z", norm(x + exp(y), scale));
          }) == Names{"exp", "add", "rms_norm"});
}

TEST_CASE("a sum with an array of fewer axes, or of an array with itself, stays as it is") {
  REQUIRE(fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
            output("z", norm(x + reduce_sum(y, "row"), scale));
          }) == Names{"reduce_sum", "add", "rms_norm"});
  REQUIRE(fused([](Tensor x, Tensor, Tensor, Tensor scale) { output("z", norm(x + x, scale)); }) ==
          Names{"add", "rms_norm"});
}

TEST_CASE("the gradient of a norm takes the sum of dx and a cotangent") {
  REQUIRE(fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
            output("dx", norm_gradient(x, scale) + y);
          }) == Names{"layer_norm", "fused_norm(layer_norm_grad add)"});
  // The cotangent may come first in the sum, and may be the norm's own.
  REQUIRE(fused([](Tensor x, Tensor, Tensor, Tensor scale) {
            const Tensor dx = norm_gradient(x, scale);
            const ValueId dy = traced_graph().find_input("dy")->value;
            output("dx", Tensor(&traced_graph(), dy) + dx);
          }) == Names{"layer_norm", "fused_norm(layer_norm_grad add)"});
}

TEST_CASE("a gradient that others read, or whose cotangent comes later, stays as it is") {
  REQUIRE(fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
            const Tensor dx = norm_gradient(x, scale);
            output("dx", dx);
            output("sum", dx + y);
          }) == Names{"layer_norm", "layer_norm_grad", "add"});
  REQUIRE(fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
            const Tensor dx = norm_gradient(x, scale);
            output("sum", dx + exp(y));
          }) == Names{"layer_norm", "layer_norm_grad", "exp", "add"});
}

// A block with two branches, each with a norm of its own.
TEST_CASE("the gradients of two norms of one array add up one after the other") {
  const Names names = fused([](Tensor x, Tensor y, Tensor dz, Tensor scale) {
    const Tensor dx = norm_gradient(x, scale);
    const Node gradient(traced_graph().nodes().back());
    // A second gradient, with another x.
    std::vector<Tensor> operands;
    for (const ValueId value : gradient.inputs) operands.emplace_back(&traced_graph(), value);
    operands[0] = y;
    const Tensor dy = trace_node(*gradient.op, operands, gradient.attributes, gradient.site)[0];
    output("sum", (dx + dz) + dy);
  });
  REQUIRE(names == Names{"layer_norm", "fused_norm(layer_norm_grad add)",
                         "fused_norm(layer_norm_grad add)"});
}

TEST_CASE("norms in loop bodies take the sums beside them") {
  const Names names = fused([](Tensor x, Tensor y, Tensor, Tensor scale) {
    const RepeatResult result =
        repeat("steps", 2, {x}, {}, [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor>) {
          return RepeatBody{{norm(carries[0] + y, scale)}, {}};
        });
    output("z", result.carries[0]);
  });
  REQUIRE(names == Names{"fused_norm(add rms_norm)"});
}

}  // namespace
}  // namespace tessera
