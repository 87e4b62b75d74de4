// SPDX-License-Identifier: Apache-2.0
// TestedLayer, the helper for layer tests: it accepts correct layers and detects errors in others.
#include "tasks/testing/tested_layer.h"

#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "layers/attention/dot_product_attention.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/models/transformer.h"
#include "layers/norms/norms.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

const std::string kRow = "f32[\"batch=2 seq=4 embed=4\"]";
const RulesConfig kTensorParallel{.weights = "mlp -> mdl", .activations = "mlp -> mdl"};

// The sum of this product over a split axis is left pending.
class Unplaced final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Unplaced;
    static constexpr std::string_view kName = "Unplaced";
    FIELDS()
  };
  explicit Unplaced(const HParams&) {
    up_ = weight("up", {{"embed", 4, {}}, {"mlp", 8, {}}}, ones());
    down_ = weight("down", {{"mlp", 8, {}}, {"embed", 4, {}}}, ones());
  }
  Tensor fprop(Tensor x) const override {
    const Tensor hidden = einsum(x, param(up_), over("embed"));
    return einsum(hidden, param(down_), over("mlp"));
  }
  static constexpr int kLine = __LINE__ - 2;

 private:
  Weight up_, down_;
};

// The gradient is half the correct one.
class HalfSquare final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = HalfSquare;
    static constexpr std::string_view kName = "HalfSquare";
    FIELDS()
  };
  explicit HalfSquare(const HParams&) {}
  Tensor fprop(Tensor x) const override { return x * stop_gradient(x); }
};

// The absolute value. Its gradient at 0 is 0 / 0.
class NoNumberAtZero final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = NoNumberAtZero;
    static constexpr std::string_view kName = "NoNumberAtZero";
    FIELDS()
  };
  explicit NoNumberAtZero(const HParams&) {}
  Tensor fprop(Tensor x) const override { return sqrt(x * x); }
};

// A large correct gradient for one weight and a small wrong one for the other.
class LargeAndSmall final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = LargeAndSmall;
    static constexpr std::string_view kName = "LargeAndSmall";
    FIELDS()
  };
  explicit LargeAndSmall(const HParams&) {
    large_ = weight("large", {{"embed", 2, {}}}, ones());
    small_ = weight("small", {{"embed", 2, {}}}, ones());
  }
  Tensor fprop(Tensor x) const override {
    const Tensor large = param(large_), small = param(small_);
    return x + exp(large * 10.0) * 1e3 + small * stop_gradient(small) * 1e-5;
  }

 private:
  Weight large_, small_;
};

TEST_CASE("attention is tested with additional operands") {
  const TestedLayer attention(
      Template<SequenceLayer>(DotProductAttention::HParams{.model_dims = 4, .num_heads = 2}),
      {{"x", "f32[\"batch=2 seq=4 embed=4\"]"}, {"segment_ids", "i32[\"batch=2 seq=4\"]"}},
      [](const SequenceLayer& layer, const NamedTensors& in) {
        return layer(in.at("x"), {.segment_ids = in.at("segment_ids")});
      });
  attention.check_gradients();
  REQUIRE(attention.weights().size() == 4);
}

TEST_CASE("a feed-forward layer's result is computed from given values") {
  const TestedLayer layer(FeedForward::HParams{.model_dims = 1, .hidden_dims = 2},
                          "f32[\"batch=1 embed=1\"]",
                          {.values = {{"x", {2}}, {"up", {3, -1}}, {"down", {5, 7}}}});
  expect_near(layer.result(), {30});
  REQUIRE(error_of([&] { expect_near(layer.result(), {31}); }) == "element 0 is 30, expected 31");
}

TEST_CASE("a wrong gradient is detected and its element is named") {
  const TestedLayer layer(HalfSquare::HParams{}, "f32[\"embed=2\"]", {.values = {{"x", {1, 3}}}});
  REQUIRE_THAT(error_of([&] { layer.check_gradients(); }),
               Catch::StartsWith("element 1 of the gradient of 'x' is ") &&
                   Catch::Contains(", but a finite difference gives "));
}

TEST_CASE("a NaN gradient is detected, independent of later elements") {
  const TestedLayer layer(NoNumberAtZero::HParams{}, "f32[\"embed=3\"]",
                          {.values = {{"x", {0, 1, 3}}}});
  REQUIRE_THAT(error_of([&] { layer.check_gradients(); }),
               Catch::Contains("element 0 of the gradient of 'x' is ") && Catch::Contains("nan"));
}

TEST_CASE("a large gradient within tolerance does not hide a small wrong one") {
  // Finite differences have an error of 2e-5 for the large gradient, which is 1e4. The small
  // gradient is wrong by 5e-6.
  const TestedLayer layer(
      LargeAndSmall::HParams{}, "f32[\"embed=2\"]",
      {.values = {{"large", {0, 0}}, {"small", {0.5, 0.5}}, {"weights of the loss", {1, 1}}}});
  REQUIRE_THAT(error_of([&] { layer.check_gradients(); }),
               Catch::Contains("of the gradient of 'small' is "));
}

TEST_CASE("a layer that leaves a sum pending is rejected, also on one device") {
  const TestedLayer layer(Unplaced::HParams{}, kRow, {.rules = kTensorParallel});
  REQUIRE(error_of([&] { layer.result(); }) ==
          "result is fetched but partial over mdl; place(result)");
}

TEST_CASE("the error for a pending sum names the source line of the layer that left it") {
  const TransformerBlock::HParams block{
      .attention_tpl = DotProductAttention::HParams{.model_dims = 4, .num_heads = 2},
      .ffn_tpl = Unplaced::HParams{},
      .norm_tpl = RmsNorm::HParams{.model_dims = 4}};
  const auto call = [](const SequenceLayer& layer, const NamedTensors& in) {
    return layer(in.at("x"), {});
  };
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 1, 1}, {1, 1, 2}}) {
    const TestedLayer layer(Template<SequenceLayer>(block), {{"x", kRow}}, call,
                            {.mesh = {.ici_mesh_shape = shape}, .rules = kTensorParallel});
    const std::string error = error_of([&] { layer.result(); });
    REQUIRE_THAT(error,
                 Catch::Contains("would count once for each device along mdl; place the "
                                 "result of einsum at tests/tasks/testing/tested_layer_test.cc:" +
                                 std::to_string(Unplaced::kLine) + " before adding"));
  }
}

TEST_CASE("values for unknown weights or operands are rejected with the nearest name") {
  const FeedForward::HParams ffn{.model_dims = 4, .hidden_dims = 8};
  REQUIRE(error_of([&] {
            TestedLayer(ffn, kRow, {.values = {{"upp", {1}}}}).result();
          }) == "the layer has no weight or operand 'upp'; did you mean 'up'?");
  REQUIRE(error_of([&] {
            TestedLayer(ffn, kRow, {.values = {{"up", {1}}}}).result();
          }) == "'up' has 32 elements, got 1");
}

TEST_CASE("run_layer_tests returns an exit code") {
  const auto passes = [] {};
  const auto fails = [] { fail("the sky is green"); };
  REQUIRE(run_layer_tests({{"one", passes}, {"two", passes}}) == 0);
  REQUIRE(run_layer_tests({{"one", passes}, {"two", fails}}) == 1);
}

}  // namespace
}  // namespace tessera
