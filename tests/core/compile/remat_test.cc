// SPDX-License-Identifier: Apache-2.0
#include "core/compile/remat/remat.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/check/numeric_gradient.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// A block of two einsums; the result of the first is marked.
Tensor block(const Tensor& x, const Tensor& up, const Tensor& down) {
  const PathScope path("block");
  const Tensor h = save_for_backward(einsum(x, up, over("embed")), "ffn1");
  const Tensor y = einsum(gelu(h), down, over("mlp"));
  return x + tanh(y);
}

const std::map<std::string, std::string> kUnrolled = {{"x", "f32[\"batch=2 embed=3\"]"},
                                                      {"up", "f32[\"embed=3 mlp=4\"]"},
                                                      {"down", "f32[\"mlp=4 embed=3\"]"}};

Tensor unrolled(const NamedTensors& p) {
  Tensor x = p.at("x");
  for (int layer = 0; layer < 2; ++layer) {
    const RematScope region;
    x = block(x, p.at("up"), p.at("down"));
  }
  return reduce_sum(square(x));
}

const std::map<std::string, std::string> kLooped = {{"x", "f32[\"batch=2 embed=3\"]"},
                                                    {"up", "f32[\"layers=2 embed=3 mlp=4\"]"},
                                                    {"down", "f32[\"layers=2 mlp=4 embed=3\"]"}};

Tensor looped(const NamedTensors& p) {
  const RepeatResult result =
      repeat("layers", 2, {p.at("x")}, {p.at("up"), p.at("down")},
             [](Tensor, std::vector<Tensor> carries, std::vector<Tensor> slices) {
               return RepeatBody{{block(carries[0], slices[0], slices[1])}, {}};
             });
  return reduce_sum(square(result.carries[0]));
}

std::vector<std::string> saved_names(const std::map<std::string, std::string>& parameters,
                                     const LossFunction& loss, const std::string& policy) {
  std::vector<SavedValue> saved;
  rematerialize(trace_gradients(parameters, loss), parse_remat_policy(policy), &saved);
  std::vector<std::string> names;
  for (const SavedValue& value : saved) names.push_back(value.name);
  return names;
}

// The number of recomputed nodes of this op.
int64_t recomputed(const Graph& graph, std::string_view op) {
  int64_t found = 0;
  for (const Node& node : graph.nodes()) {
    found += node.remat_clone && node.op->name == op ? 1 : 0;
    for (const auto& body : node.bodies) found += recomputed(*body, op);
  }
  return found;
}

using Names = std::vector<std::string>;

TEST_CASE("A policy decides what regions of unrolled layers save") {
  REQUIRE(saved_names(kUnrolled, unrolled, "save_nothing") == Names{"add", "add"});
  REQUIRE(saved_names(kUnrolled, unrolled, "ffn1") == Names{"ffn1", "add", "ffn1", "add"});
  REQUIRE(saved_names(kUnrolled, unrolled, "save_dot_only") ==
          Names{"ffn1", "einsum", "add", "ffn1", "einsum", "add"});
  REQUIRE(saved_names(kUnrolled, unrolled, "save_everything").size() > 6);
}

TEST_CASE("A policy decides what every iteration of a loop saves") {
  REQUIRE(saved_names(kLooped, looped, "save_nothing") == Names{"add", "carry 0"});
  const Names kept = saved_names(kLooped, looped, "ffn1");
  REQUIRE(std::count(kept.begin(), kept.end(), "ffn1") == 1);
  REQUIRE(kept.size() == 3);
}

TEST_CASE("Saved values are reported with their layer and the bytes of all iterations") {
  std::vector<SavedValue> saved;
  rematerialize(trace_gradients(kLooped, looped), parse_remat_policy("ffn1"), &saved);
  const auto ffn1 = std::find_if(saved.begin(), saved.end(),
                                 [](const SavedValue& value) { return value.name == "ffn1"; });
  REQUIRE(ffn1 != saved.end());
  REQUIRE(ffn1->type.bytes() == 2 * 2 * 4 * 4);  // layers x batch x mlp x bytes.
}

TEST_CASE("Saved names are not recomputed") {
  for (const auto& [parameters, loss] :
       {std::pair(kUnrolled, &unrolled), std::pair(kLooped, &looped)}) {
    const int64_t layers = parameters == kUnrolled ? 2 : 1;  // A loop has one body.
    const auto einsums = [&](const char* policy) {
      const Graph graph = trace_gradients(parameters, *loss);
      return recomputed(rematerialize(graph, parse_remat_policy(policy)), "einsum");
    };
    REQUIRE(einsums("save_nothing") == 2 * layers);
    REQUIRE(einsums("ffn1") == layers);
    REQUIRE(einsums("save_dot_only") == 0);
    REQUIRE(einsums("save_everything") == 0);
  }
}

// A gated activation: the backward pass reads silu(gate) and gate in one fused loop.
Tensor gated(const Tensor& x, const Tensor& up, const Tensor& gate, const Tensor& down) {
  const Tensor h = silu(einsum(x, gate, over("embed"))) * einsum(x, up, over("embed"));
  return x + einsum(h, down, over("mlp"));
}

TEST_CASE(
    "Values that a fused loop recomputes from available operands are not saved under any policy") {
  const std::string wide = "f32[\"embed=3 mlp=4\"]", stacked = "f32[\"layers=2 embed=3 mlp=4\"]";
  const auto once = [](const NamedTensors& p) {
    return reduce_sum(square(gated(p.at("x"), p.at("up"), p.at("gate"), p.at("down"))));
  };
  const auto in_loop = [](const NamedTensors& p) {
    const auto body = [](Tensor, std::vector<Tensor> x, std::vector<Tensor> w) {
      return RepeatBody{{gated(x[0], w[0], w[1], w[2])}, {}};
    };
    const RepeatResult result =
        repeat("layers", 2, {p.at("x")}, {p.at("up"), p.at("gate"), p.at("down")}, body);
    return reduce_sum(square(result.carries[0]));
  };
  const std::map<std::string, std::string> parameters = {{"x", "f32[\"batch=2 embed=3\"]"},
                                                         {"up", wide},
                                                         {"gate", wide},
                                                         {"down", "f32[\"mlp=4 embed=3\"]"}};
  std::map<std::string, std::string> looped_parameters = {
      {"x", "f32[\"batch=2 embed=3\"]"},
      {"up", stacked},
      {"gate", stacked},
      {"down", "f32[\"layers=2 mlp=4 embed=3\"]"}};
  for (const Names& saved : {saved_names(parameters, once, "save_everything"),
                             saved_names(looped_parameters, in_loop, "save_everything")}) {
    REQUIRE(std::count(saved.begin(), saved.end(), "silu") == 0);
    REQUIRE(std::count(saved.begin(), saved.end(), "einsum") == 2);  // gate and up.
    REQUIRE(std::count(saved.begin(), saved.end(), "mul") == 1);     // For down's gradient.
  }
}

TEST_CASE("A mark names its operand even if nobody reads the result of the mark") {
  const auto loss = [](const NamedTensors& p) {
    const RematScope region;
    const Tensor h = einsum(p.at("x"), p.at("up"), over("embed"));
    save_for_backward(rename(h, "mlp", "hidden"), "ffn1");
    return reduce_sum(square(tanh(h)));
  };
  const std::map<std::string, std::string> parameters = {{"x", "f32[\"batch=2 embed=3\"]"},
                                                         {"up", "f32[\"embed=3 mlp=4\"]"}};
  REQUIRE(saved_names(parameters, loss, "ffn1") == Names{"ffn1"});
}

TEST_CASE("Gradients agree with finite differences under every policy") {
  for (const char* policy : {"save_nothing", "ffn1", "save_dot_only", "save_everything"}) {
    INFO(policy);
    for (const auto& [parameters, loss] :
         {std::pair(kUnrolled, &unrolled), std::pair(kLooped, &looped)})
      REQUIRE(gradient_error(rematerialize(trace_gradients(parameters, *loss),
                                           parse_remat_policy(policy))) < 1e-8);
  }
}

TEST_CASE("Policies are parsed from Pax's names or a list, and print as they are parsed") {
  for (const char* text : {"save_nothing", "save_everything", "save_context_and_out_proj",
                           "save_dot_with_no_batch_dims", "query_proj,ffn1"})
    REQUIRE(parse_remat_policy(text).text() == text);
  REQUIRE(parse_remat_policy("query_proj, ffn1").names == Names{"query_proj", "ffn1"});
  REQUIRE_THAT(error_of([] { parse_remat_policy("save_nothin"); }),
               Catch::Contains("unknown remat policy 'save_nothin'; did you mean 'save_nothing'?"));
  REQUIRE_THAT(error_of([] { parse_remat_policy("ffn1,,ffn2"); }),
               Catch::Contains("an empty name"));
}

TEST_CASE("a list may only have names that the model saves, a policy of Pax any") {
  const Graph graph = trace_gradients(kLooped, looped);  // The mark is in the body of a loop.
  for (const char* text : {"ffn1", "save_nothing", "save_dot_except_logits"})
    REQUIRE_NOTHROW(check_remat_names(parse_remat_policy(text), graph));
  REQUIRE(
      error_of([&] { check_remat_names(parse_remat_policy("ffn1,fnf1"), graph); }) ==
      "remat_policy=ffn1,fnf1: the model saves no value 'fnf1'; did you mean 'ffn1'?; expected a "
      "policy such as save_nothing, or names of its values: ffn1");
}

}  // namespace
}  // namespace tessera
