// SPDX-License-Identifier: Apache-2.0
// Gradients of small graphs, with loops, against finite differences, and the types of cotangents.
#include "core/compile/autodiff/autodiff.h"

#include "core/check/numeric_gradient.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// Tolerance of central differences with step 1e-5 on values near 1: rounding 1e-11, curvature
// 1e-10.
constexpr double kTolerance = 1e-8;

double error_in(const std::map<std::string, std::string>& parameters, const LossFunction& loss) {
  const Graph graph = trace_gradients(parameters, loss);
  verify(graph, Mesh());
  return gradient_error(graph);
}

TEST_CASE("The cotangent of a value used twice is the sum of both contributions") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor h = tanh(p.at("x"));
    return reduce_sum(h * h + exp(h) * p.at("x"));
  };
  REQUIRE(error_in({{"x", "f32[\"row=2 column=3\"]"}}, loss) < kTolerance);
}

TEST_CASE("Cotangents of broadcast operands are summed over the axes they lack") {
  const auto loss = [](const NamedTensors& p) {
    return reduce_sum(tanh(p.at("x") * p.at("b") + p.at("c")));
  };
  REQUIRE(
      error_in({{"x", "f32[\"row=2 column=3\"]"}, {"b", "f32[\"column=3\"]"}, {"c", "f32[\"\"]"}},
               loss) < kTolerance);
}

TEST_CASE("Gradients of a two-layer network agree with finite differences") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor h = gelu(einsum(p.at("x"), p.at("up"), over("embed")));
    const Tensor y = einsum(h, p.at("down"), over("mlp"));
    return reduce_sum(square(y + p.at("x")));
  };
  REQUIRE(error_in({{"x", "f32[\"batch=3 embed=2\"]"},
                    {"up", "f32[\"embed=2 mlp=4\"]"},
                    {"down", "f32[\"mlp=4 embed=2\"]"}},
                   loss) < kTolerance);
}

TEST_CASE("The gradient of a parameter that the loss does not depend on is zero") {
  const auto loss = [](const NamedTensors& p) {
    return reduce_sum(square(p.at("x"))) + reduce_sum(stop_gradient(p.at("y")));
  };
  const Graph graph = trace_gradients({{"x", "f32[\"row=2\"]"}, {"y", "bf16[\"column=3\"]"}},
                                      [&](const NamedTensors& p) {
                                        NamedTensors wide = p;
                                        wide["y"] = cast(p.at("y"), DType::kF32);
                                        return loss(wide);
                                      });
  const auto outputs = evaluate(graph, sample_inputs(graph));
  REQUIRE(outputs.at("gradient of y").values == std::vector<double>{0, 0, 0});
  REQUIRE(graph.type(graph.find_output("gradient of y")->value).text() == "bf16[\"column\"]");
}

// x <- tanh(x·w[layer] + b) with a shared b; the sum of all layers' results is also used.
Tensor looped_network(const NamedTensors& p) {
  const RepeatResult result =
      repeat("layers", 3, {p.at("x")}, {p.at("w")},
             [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor> slices) {
               const Tensor product = einsum(carries[0], slices[0], over("embed"));
               const Tensor y = tanh(rename(product, "out", "embed") + p.at("b"));
               return RepeatBody{{y}, {reduce_sum(square(y), "batch")}};
             });
  return reduce_sum(square(result.carries[0])) + reduce_sum(result.stacked[0] * p.at("s"));
}

TEST_CASE("Carries, slices, constants and stacked results of a loop are differentiated") {
  REQUIRE(error_in({{"x", "f32[\"batch=2 embed=3\"]"},
                    {"w", "f32[\"layers=3 embed=3 out=3\"]"},
                    {"b", "f32[\"embed=3\"]"},
                    {"s", "f32[\"layers=3 embed=3\"]"}},
                   looped_network) < kTolerance);
}

TEST_CASE("A carry that only later iterations of other carries read is differentiated") {
  // The loss reads `a`, to which `b` and `c` come by one and two iterations.
  const auto loss = [](const NamedTensors& p) {
    const RepeatResult result =
        repeat("layers", 4, {p.at("a"), p.at("b"), p.at("c")}, {},
               [&](Tensor, std::vector<Tensor> x, std::vector<Tensor>) {
                 return RepeatBody{{tanh(x[0] + x[1]), x[1] * x[2], sin(x[2] * p.at("w"))}, {}};
               });
    return reduce_sum(square(result.carries[0]));
  };
  const std::string type = "f32[\"embed=3\"]";
  REQUIRE(error_in({{"a", type}, {"b", type}, {"c", type}, {"w", type}}, loss) < kTolerance);
}

TEST_CASE("Nested loops are differentiated") {
  const auto loss = [](const NamedTensors& p) {
    const RepeatResult outer =
        repeat("block", 2, {p.at("x")}, {p.at("w")},
               [&](Tensor, std::vector<Tensor> x, std::vector<Tensor> w) {
                 const RepeatResult inner =
                     repeat("layers", 3, {x[0]}, {w[0]},
                            [&](Tensor, std::vector<Tensor> y, std::vector<Tensor> v) {
                              return RepeatBody{{tanh(y[0] * v[0] + p.at("b"))}, {}};
                            });
                 return RepeatBody{{inner.carries[0] + x[0]}, {}};
               });
    return reduce_sum(square(outer.carries[0]));
  };
  REQUIRE(error_in({{"x", "f32[\"embed=3\"]"},
                    {"w", "f32[\"block=2 layers=3 embed=3\"]"},
                    {"b", "f32[\"embed=3\"]"}},
                   loss) < kTolerance);
}

TEST_CASE("Gradients computed inside a loop accumulate over microbatches") {
  const auto loss_of = [](const Tensor& x, const Tensor& w) {
    const RepeatResult layers =
        repeat("layers", 2, {x}, {}, [&](Tensor, std::vector<Tensor> h, std::vector<Tensor>) {
          return RepeatBody{{tanh(h[0] * loop_slice(w))}, {}};
        });
    return reduce_sum(square(layers.carries[0]));
  };
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"micro=4 embed=3\"]"));
  const Tensor w = input("w", InputKind::kParameter, parse_type("f32[\"layers=2 embed=3\"]"));
  const Tensor zero = constant(0.0, DType::kF32, w.type().axes);
  const RepeatResult sums =
      repeat("micro", 4, {zero, constant(0.0, DType::kF32)}, {x},
             [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor> slices) {
               const Tensor loss = loss_of(slices[0], w);
               const Tensor gradient = gradients(loss, {w})[0];
               return RepeatBody{{carries[0] + gradient, carries[1] + loss}, {}};
             });
  output("gradient of w", sums.carries[0]);
  output("loss", sums.carries[1]);
  verify(graph, mesh);
  REQUIRE(gradient_error(graph) < kTolerance);
}

TEST_CASE("The error for an op without a gradient gives its line") {
  const std::string message = error_of([] {
    trace_gradients({{"x", "f32[\"row=2\"]"}},
                    [](const NamedTensors& p) { return reduce_max(p.at("x"), "row"); });
  });
  REQUIRE_THAT(message, Catch::Contains("autodiff_test.cc:"));
  REQUIRE_THAT(message, Catch::Contains("reduce_max has no gradient; stop_gradient its operand"));
}

TEST_CASE("A loss that is not an f32 scalar is refused") {
  const std::string message = error_of([] {
    trace_gradients({{"x", "f32[\"row=2\"]"}}, [](const NamedTensors& p) { return p.at("x"); });
  });
  REQUIRE_THAT(message, Catch::Contains("expected an f32 scalar"));
}

const Mesh kMesh({{"data", 2}, {"mdl", 4}});

// The type of the first input as a cotangent of a value of the second type.
std::string as_cotangent_of(const std::string& contribution, const std::string& primal) {
  Trial trial(kMesh, {contribution, primal});
  return as_cotangent(trial.inputs()[0], trial.inputs()[1].type()).type().text_sized();
}

TEST_CASE("A cotangent has the axis order of its value, also for equal sizes") {
  REQUIRE(as_cotangent_of("f32[\"mlp=8 embed=8\"]", "f32[\"embed=8 mlp=8\"]") ==
          "f32[\"embed=8 mlp=8\"]");
}

TEST_CASE(
    "A cotangent has the dtype and splits of its value, and stays partial where the value is "
    "replicated") {
  REQUIRE(as_cotangent_of("f32[\"embed=8\" + sum(data)]", "bf16[\"embed=8\"]") ==
          "bf16[\"embed=8\" + sum(data)]");
  REQUIRE(as_cotangent_of("f32[\"embed=8\" + sum(data)]", "f32[\"embed/data=8\"]") ==
          "f32[\"embed/data=8\"]");
  REQUIRE(as_cotangent_of("f32[\"embed=8\" + sum(data)]", "f32[\"embed=8\" + sum(data)]") ==
          "f32[\"embed=8\"]");
}

}  // namespace
}  // namespace tessera
