// SPDX-License-Identifier: Apache-2.0
// Unary layers against their formulas.
#include <algorithm>
#include <cmath>
#include <functional>

#include "core/base/error.h"
#include "layers/dropout.h"
#include "layers/feed_forward/activations.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/norms/norms.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

TEST_CASE("Linear multiplies by its matrix and adds its bias") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"batch=2 embed=2\"]", {1, 2, 3, 4});
  const Linear::HParams p{.input_dims = 2, .output_dims = 3, .use_bias = true};
  require_close(trial.apply(p, x, {{"w", {1, 0, 2, 0, 1, 3}}, {"b", {10, 20, 30}}}),
                {11, 22, 38, 13, 24, 48});
}

TEST_CASE("Linear refuses the same name for both axes") {
  const Template<UnaryLayer> p = Linear::HParams{
      .input_dims = 2, .output_dims = 3, .input_axis = "embed", .output_axis = "embed"};
  REQUIRE_THROWS_WITH(p.instantiate(), Catch::Contains("input_axis and output_axis are both"));
}

TEST_CASE("Bias adds along its axis") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"batch=2 embed=2\"]", {1, 2, 3, 4});
  require_close(trial.apply(Bias::HParams{.dims = 2}, x, {{"b", {10, 20}}}), {11, 22, 13, 24});
}

TEST_CASE("RmsNorm divides by the root mean square") {
  const double unit = 1 / std::sqrt(12.5 + 1e-6);  // 1 / RMS of 3 and 4.
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"embed=2\"]", {3, 4});
  const auto scaled = [&](bool direct) {
    LayerTrial each;
    return each.apply(RmsNorm::HParams{.model_dims = 2, .direct_scale = direct},
                      each.in("x", "f32[\"embed=2\"]", {3, 4}), {{"scale", {0.5, -0.25}}});
  };
  require_close(scaled(true), {3 * unit * 0.5, 4 * unit * -0.25});
  require_close(scaled(false), {3 * unit * 1.5, 4 * unit * 0.75});
  require_close(trial.apply(RmsNorm::HParams{.model_dims = 2, .use_scale = false}, x),
                {3 * unit, 4 * unit});
}

TEST_CASE("LayerNorm subtracts the mean, divides by the deviation, scales and shifts") {
  const double unit = 1 / std::sqrt(1.0 + 1e-6);  // For 1 and 3: mean 2, variance 1.
  const auto normed = [](const LayerNorm::HParams& p) {
    LayerTrial trial;
    return trial.apply(p, trial.in("x", "f32[\"embed=2\"]", {1, 3}),
                       {{"scale", {2, 4}}, {"bias", {10, 20}}});
  };
  LayerNorm::HParams p{.model_dims = 2};
  require_close(normed(p), {10 - 2 * unit, 20 + 4 * unit});
  p.direct_scale = false;
  require_close(normed(p), {10 - 3 * unit, 20 + 5 * unit});
  p.use_scale = false;
  require_close(normed(p), {10 - unit, 20 + unit});
  p.use_bias = false;
  require_close(normed(p), {-unit, unit});
}

TEST_CASE("the initial scale of a norm is one, whichever way it is stored") {
  for (const bool direct : {true, false}) {
    LayerTrial trial;
    const Tensor x = trial.in("x", "f32[\"embed=2\"]", {1, 3});
    require_close(trial.apply(LayerNorm::HParams{.model_dims = 2, .direct_scale = direct}, x),
                  {-1 / std::sqrt(1 + 1e-6), 1 / std::sqrt(1 + 1e-6)});
  }
}

TEST_CASE("activations are registered by name and compute their formulas") {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto positive = [](double x) { return std::max(x, 0.0); };
  const std::map<std::string, std::function<double(double)>> formulas = {
      {"Identity", [](double x) { return x; }},
      {"ReLU", positive},
      {"ReLU6", [&](double x) { return std::min(positive(x), 6.0); }},
      {"SquaredReLU", [&](double x) { return positive(x) * positive(x); }},
      {"CubedReLU", [&](double x) { return positive(x) * positive(x) * positive(x); }},
      {"LeakyReLU", [](double x) { return x > 0 ? x : 0.01 * x; }},
      {"GELU",
       [](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       }},
      {"SiLU", [&](double x) { return x * sigmoid(x); }},
      {"Sigmoid", sigmoid},
      {"Tanh", [](double x) { return std::tanh(x); }},
      {"Softplus", [](double x) { return std::log1p(std::exp(x)); }},
      {"Exp", [](double x) { return std::exp(x); }},
      {"Swish", [](double x) { return x / (1.0 + std::exp(-x)); }},
  };
  std::vector<std::string> names;
  for (const auto& [name, formula] : formulas) {
    INFO(name);
    names.push_back(name);
    Template<Activation> activation;
    from_tree(Tree::typed(name, {}), activation);
    LayerTrial trial;
    const Values at = {-3.1, -0.4, 0.0, 0.7, 2.5, 7.0};
    const Tensor x = trial.in("x", "f32[\"embed=6\"]", at);
    Values expected;
    for (const double each : at) expected.push_back(formula(each));
    require_close(trial.run(activation, {}, [&](const Activation& a) { return a(x); }).values,
                  expected);
  }
  REQUIRE(template_names(typeid(Activation)) == names);
}

TEST_CASE("GELU can be exact") {
  LayerTrial trial;
  const Template<Activation> exact = GELU::HParams{.approximate = false};
  const Tensor x = trial.in("x", "f32[\"embed=1\"]", {0.7});
  require_close(trial.run(exact, {}, [&](const Activation& a) { return a(x); }).values,
                {0.35 * (1 + std::erf(0.7 / std::sqrt(2.0)))});
}

TEST_CASE("Dropout zeroes some elements in training and scales the others up") {
  const auto dropped = [](Mode mode) {
    LayerTrial trial(mode);
    const PathScope path("x_layers[1].dropout");
    return trial.apply(Dropout::HParams{.rate = 0.25},
                       trial.in("x", "f32[\"batch=100 embed=100\"]", Values(10000, 3.0)));
  };
  const Values trained = dropped(Mode::kTrain);
  const auto zeros = std::count(trained.begin(), trained.end(), 0.0);
  REQUIRE(zeros == Approx(2500).margin(150));  // Three and a half standard deviations of 43.
  REQUIRE(std::count(trained.begin(), trained.end(), 4.0) == 10000 - zeros);
  REQUIRE(trained == dropped(Mode::kTrain));
  REQUIRE(dropped(Mode::kEval) == Values(10000, 3.0));
}

TEST_CASE("Dropout refuses a rate of 1, and training without a step") {
  const Template<UnaryLayer> all = Dropout::HParams{.rate = 1.0};
  REQUIRE_THROWS_WITH(all.instantiate(),
                      Catch::Contains("Dropout: rate is 1.0, expected at least 0 and below 1"));
  LayerTrial trial;
  const Template<UnaryLayer> half = Dropout::HParams{.rate = 0.5};
  const FpropScope no_step({}, Features{});
  REQUIRE_THROWS_WITH((*half.instantiate())(trial.in("x", "f32[\"embed=1\"]", {1})),
                      Catch::Contains("dropout derives its mask from the step"));
}

TEST_CASE("FeedForward computes down(activation(up)), with biases") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"batch=1 embed=2\"]", {1, 2});
  const FeedForward::HParams p{.model_dims = 2, .hidden_dims = 2, .use_bias = true};
  // Hidden: (1·1 + 2·1 - 1, 1·-1 + 2·-1 + 1) = (2, -2), then (2, 0).
  require_close(trial.apply(p, x,
                            {{"up", {1, -1, 1, -1}},
                             {"up_bias", {-1, 1}},
                             {"down", {1, 2, 3, 4}},
                             {"down_bias", {10, 20}}}),
                {12, 24});
}

TEST_CASE("a gated FeedForward multiplies activation(gate) and up") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"batch=1 embed=1\"]", {2});
  const FeedForward::HParams p{.model_dims = 1,
                               .hidden_dims = 1,
                               .activation_tpl = SiLU::HParams{},
                               .use_gated_activation = true};
  const double gate = 2 * 0.5, silu = gate / (1 + std::exp(-gate));
  require_close(trial.apply(p, x, {{"gate", {0.5}}, {"up", {3}}, {"down", {7}}}), {silu * 6 * 7});
}

TEST_CASE("Mlp stacks linear maps and activations") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"batch=1 features=1\"]", {2});
  const Mlp::HParams p{.input_dims = 1, .hidden_dims = {2, 1}};
  const ReferenceInputs weights = {{"linears[0].w", {1, -1}},
                                   {"linears[0].b", {0, 5}},
                                   {"linears[1].w", {10, 100}},
                                   {"linears[1].b", {0.5}}};
  require_close(trial.apply(p, x, weights), {2 * 10 + 3 * 100 + 0.5});
  const Template<UnaryLayer> none = Mlp::HParams{.input_dims = 1};
  REQUIRE_THROWS_WITH(none.instantiate(), Catch::Contains("hidden_dims is empty"));
}

}  // namespace
}  // namespace tessera
