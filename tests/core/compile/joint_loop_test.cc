// SPDX-License-Identifier: Apache-2.0
// Loops whose gradients are computed in the same iteration: which are merged, and their values.
#include "core/compile/remat/joint_loop.h"

#include <algorithm>

#include "core/check/numeric_gradient.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/compile/remat/remat.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

int64_t loops_of(const Graph& graph) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), is_repeat);
}

const std::map<std::string, std::string> kParameters = {{"x", "f32[\"chunks=3 batch=2 embed=2\"]"},
                                                        {"w", "f32[\"embed=2 vocab=4\"]"},
                                                        {"s", "f32[\"chunks=3 batch=2\"]"}};

// One number for each row of each chunk: a sum over "vocab".
Tensor scores(const NamedTensors& p) {
  return repeat("chunks", 3, {}, {p.at("x")},
                [&](Tensor, std::vector<Tensor>, std::vector<Tensor> slices) -> RepeatBody {
                  const Tensor logits = tanh(einsum(slices[0], p.at("w"), over("embed")));
                  return {{}, {reduce_sum(exp(logits), "vocab")}};
                })
      .stacked[0];
}

Tensor weighted(const NamedTensors& p) { return reduce_sum(scores(p) * p.at("s")); }

// The values of all outputs before and after the pass.
void require_same_values(const Graph& before, const Graph& after) {
  const ReferenceInputs inputs = sample_inputs(before);
  const auto expected = evaluate(before, inputs), got = evaluate(after, inputs);
  REQUIRE(got.size() == expected.size());
  for (const auto& [name, array] : expected)
    for (size_t i = 0; i < array.values.size(); ++i) {
      INFO(name << "[" << i << "]");
      REQUIRE(got.at(name).values[i] == Approx(array.values[i]).epsilon(1e-12));
    }
}

TEST_CASE("a loop without carries is merged with its gradient, and no chunk is kept") {
  const Graph traced = trace_gradients(kParameters, weighted);
  REQUIRE(loops_of(traced) == 2);
  const Graph merged = merge_loops(traced);
  verify(merged, Mesh());
  REQUIRE(loops_of(merged) == 1);
  require_same_values(traced, merged);
  REQUIRE(gradient_error(merged) < 1e-8);
  for (const char* policy : {"save_everything", "save_nothing", "save_dot_only"}) {
    INFO(policy);
    const Graph graph = rematerialize(traced, parse_remat_policy(policy));
    verify(graph, Mesh());
    REQUIRE(loops_of(graph) == 1);
    for (const Value& value : graph.values())
      REQUIRE(!(value.type->has("chunks") && value.type->has("vocab")));
    require_same_values(traced, graph);
  }
}

TEST_CASE("a loop whose results decide its cotangents is not merged") {
  const auto loss = [](const NamedTensors& p) { return reduce_sum(square(scores(p))); };
  const Graph traced = trace_gradients(kParameters, loss);
  const Graph merged = merge_loops(traced);
  REQUIRE(loops_of(merged) == 2);
  REQUIRE(gradient_error(merged) < 1e-8);
}

TEST_CASE("a loop that carries a value is not merged") {
  const auto loss = [](const NamedTensors& p) {
    const RepeatResult result =
        repeat("chunks", 3, {p.at("s")}, {p.at("x")},
               [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor> slices) -> RepeatBody {
                 return {{tanh(carries[0])}, {square(slices[0])}};
               });
    return reduce_sum(result.carries[0]) + reduce_sum(result.stacked[0]);
  };
  const Graph traced = trace_gradients(kParameters, loss);
  REQUIRE(loops_of(merge_loops(traced)) == 2);
  REQUIRE(gradient_error(merge_loops(traced)) < 1e-8);
}

TEST_CASE("a loop over the results of another one is merged with its own gradient") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor first = scores(p);
    const RepeatResult second =
        repeat("chunks", 3, {}, {first},
               [&](Tensor, std::vector<Tensor>, std::vector<Tensor> slices) -> RepeatBody {
                 return {{}, {square(slices[0])}};
               });
    return reduce_sum(second.stacked[0]);
  };
  const Graph traced = trace_gradients(kParameters, loss);
  const Graph merged = merge_loops(traced);
  verify(merged, Mesh());
  require_same_values(traced, merged);
  REQUIRE(gradient_error(merged) < 1e-8);
}

TEST_CASE("loops within a loop over microbatches are merged, too") {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"micro=2 chunks=3 embed=2\"]"));
  const Tensor w = input("w", InputKind::kParameter, parse_type("f32[\"embed=2\"]"));
  const RepeatResult sums =
      repeat("micro", 2, {constant(0.0, DType::kF32, w.type().axes)}, {x},
             [&](Tensor, std::vector<Tensor> carries, std::vector<Tensor> slices) -> RepeatBody {
               const Tensor inside = imported(w);
               const RepeatResult chunks =
                   repeat("chunks", 3, {}, {slices[0]},
                          [&](Tensor, std::vector<Tensor>, std::vector<Tensor> rows) -> RepeatBody {
                            return {{}, {reduce_sum(tanh(rows[0] * inside))}};
                          });
               return {{carries[0] + gradients(reduce_sum(chunks.stacked[0]), {inside})[0]}, {}};
             });
  output("gradient", sums.carries[0]);
  const Graph merged = merge_loops(graph);
  verify(merged, mesh);
  require_same_values(graph, merged);
  const auto outer = std::find_if(merged.nodes().begin(), merged.nodes().end(), is_repeat);
  REQUIRE(loops_of(Loop(*outer).body()) == 1);
}

TEST_CASE("the gradient of a bf16 constant of a loop is summed in f32 and not rounded") {
  const auto loss = [](const NamedTensors& p) {
    const Tensor w = cast_weight(p.at("w"), DType::kBF16, DType::kF32);
    const Tensor x = cast(p.at("x"), DType::kBF16);
    const RepeatResult result =
        repeat("chunks", 3, {}, {x},
               [&](Tensor, std::vector<Tensor>, std::vector<Tensor> slices) -> RepeatBody {
                 const Tensor logits = einsum(slices[0], w, over("embed"));
                 return {{}, {cast(logits, DType::kF32)}};
               });
    return reduce_sum(square(result.stacked[0]));
  };
  const Graph graph = trace_gradients(kParameters, loss);
  const ValueId gradient = graph.find_output("gradient of w")->value;
  const Node& node = graph.node(graph.value(gradient).producer);
  REQUIRE(is_repeat(node));  // No cast follows it.
  REQUIRE(graph.type(gradient).dtype == DType::kF32);
}

}  // namespace
}  // namespace tessera
