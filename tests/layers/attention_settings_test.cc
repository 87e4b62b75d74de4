// SPDX-License-Identifier: Apache-2.0
// Windows, sinks, parts of heads that are rotated, norms of all heads, and the values that are
// refused.
// Whole models with these settings are compared with transformers in tests/tasks/interop.
#include <cmath>

#include "core/base/error.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/feed_forward/activations.h"
#include "layers/models/transformer.h"
#include "layers/norms/norms.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"
#include "tests/support/model_outputs.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;

double loss_of_blocks(const TransformerBlock::HParams& block) {
  const TransformerLm::HParams lm{
      .vocab_size = 17,
      .model_dims = 8,
      .num_layers = 2,
      .num_heads = 2,
      .hidden_dims = 16,
      .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block},
      .params_init = WeightInit{InitKind::kGaussian, 1.0}};
  return model_outputs({.lm_tpl = lm}).at("loss")[0];
}

double loss_of(const DotProductAttention::HParams& attention) {
  return loss_of_blocks({.attention_tpl = attention});
}

TEST_CASE("a window hides earlier tokens, also where dropout needs all scores") {
  const double all = loss_of({});
  REQUIRE(loss_of({.window = 6}) == all);  // The length of the sequence.
  const double windowed = loss_of({.window = 2});
  REQUIRE(std::abs(windowed - all) > 1e-3);
  REQUIRE(std::abs(loss_of({.window = 1}) - windowed) > 1e-3);
  // Nothing is dropped, but the fused op is not used.
  REQUIRE(loss_of({.window = 2, .dropout_rate = 1e-12}) == Approx(windowed).epsilon(1e-5));
  const double to_both_sides = loss_of({.causal = false, .window = 2});
  REQUIRE(std::abs(to_both_sides - windowed) > 1e-3);
  REQUIRE(loss_of({.causal = false, .window = 2, .dropout_rate = 1e-12}) ==
          Approx(to_both_sides).epsilon(1e-5));
  REQUIRE(loss_of({.causal = false, .window = 6}) == loss_of({.causal = false}));
}

TEST_CASE("an extra logit takes a share of the softmax, also where dropout needs all scores") {
  const double none = loss_of({});
  REQUIRE(loss_of({.extra_logit = -1e9}) == Approx(none).epsilon(1e-6));
  const double zero = loss_of({.extra_logit = 0.0});
  REQUIRE(std::abs(zero - none) > 1e-3);
  REQUIRE(loss_of({.use_sinks = true}) == zero);  // They begin at 0.
  REQUIRE(loss_of({.extra_logit = 0.0, .dropout_rate = 1e-12}) == Approx(zero).epsilon(1e-5));
  // All of the softmax: attention adds nothing.
  REQUIRE(std::abs(loss_of({.extra_logit = 1e9}) - zero) > 1e-3);
}

TEST_CASE("Swish is x·σ(slope·x) of x up to its limit") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"row=4\"]", {-1, 0, 0.5, 3});
  const auto swish = [](double value) { return value / (1.0 + std::exp(-2.0 * value)); };
  const Template<Activation> swish_tpl = Swish::HParams{.slope = 2.0, .limit = 1.0};
  const auto y = trial.run(swish_tpl, {}, [&](const Activation& layer) { return layer(x); });
  require_close(y.values, {swish(-1), 0.0, swish(0.5), swish(1)}, 1e-6);
}

TEST_CASE("a part of each head is rotated, and scaled") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"batch=1 seq=1 heads=1 head_dim=4\"]", {1, 0, 5, 6});
  const Tensor positions = trial.in("positions", "i32[\"seq=1\"]", {2});
  const RotaryPositionEmbedding::HParams p{.rotary_share = 0.5, .output_scale = 3.0};
  const auto rotated =
      trial.run(Template<RotaryPositionEmbedding>(p), {},
                [&](const RotaryPositionEmbedding& layer) { return layer(x, positions); });
  require_close(rotated.values, {3.0 * std::cos(2.0), 3.0 * std::sin(2.0), 5, 6}, 1e-6);
}

TEST_CASE("HeadsRmsNorm divides by the root mean square of all heads") {
  LayerTrial trial;
  const Tensor x =
      trial.in("x", "f32[\"batch=1 seq=2 kv_heads=2 head_dim=2\"]", {1, 1, 1, 1, 2, 0, 0, 0});
  const HeadsRmsNorm::HParams p{
      .num_heads = 2, .dims_per_head = 2, .axis = "kv_heads", .epsilon = 0.0};
  require_close(trial.apply(p, x, {{"scale", {1, 2, 3, 4}}}), {1, 2, 3, 4, 2, 0, 0, 0}, 1e-6);
}

TEST_CASE("multipliers act on rows, residuals and logits") {
  LayerTrial trial;
  const Tensor ids = trial.in("ids", "i32[\"batch=1 seq=1\"]", {1});
  const Embedding::HParams table{
      .vocab_size = 2, .model_dims = 4, .scale_sqrt_depth = true, .multiplier = 3.0};
  const auto rows = trial.run(Template<Embedding>(table), {{"w", {0, 0, 0, 0, 1, 2, 3, 4}}},
                              [&](const Embedding& layer) { return layer(ids); });
  require_close(rows.values, {6, 12, 18, 24}, 1e-6);
  LayerTrial other;
  const Tensor x = other.in("x", "f32[\"batch=1 seq=1 embed=4\"]", {1, 1, 1, 1});
  FullSoftmax::HParams head{.vocab_size = 2, .model_dims = 4, .use_bias = true};
  head.loss.multiplier = 0.5;
  const auto logits =
      other.run(Template<BaseSoftmax>(head), {{"w", {1, 0, 1, 0, 1, 0, 1, 0}}, {"b", {7, 8}}},
                [&](const BaseSoftmax& layer) { return layer.logits(x); });
  require_close(logits.values, {9, 8}, 1e-6);
  REQUIRE(std::abs(loss_of_blocks({.residual_multiplier = 0.5}) - loss_of({})) > 1e-3);
}

TEST_CASE("settings that contradict each other are refused") {
  REQUIRE_THAT(error_of([] { loss_of({.use_sinks = true, .extra_logit = 0.0}); }),
               Contains("leave extra_logit unset"));
  const MoeFeedForward::HParams ungated{.num_experts = 2, .up_offset = 1.0};
  REQUIRE_THAT(error_of([&] { loss_of_blocks({.ffn_tpl = ungated}); }),
               Contains("up_limit and up_offset are for experts with use_gated_activation=true"));
  const TransformerBlock::HParams both{.norm_policy = NormPolicy::kPost, .parallel = true};
  REQUIRE_THAT(error_of([&] { loss_of_blocks(both); }),
               Contains("parallel=true with norm_policy=post"));
  const auto rotary = [](const RotaryPositionEmbedding::HParams& p) {
    return error_of([&] { loss_of({.rotary_tpl = p}); });
  };
  REQUIRE_THAT(rotary({.stretch = RotaryStretchHParams{}, .yarn = RotaryYarnHParams{}}),
               Contains("several of stretch, yarn, long_sequences and dynamic"));
  REQUIRE_THAT(rotary({.yarn = RotaryYarnHParams{.fast = 1.0, .slow = 1.0}}),
               Contains("yarn.slow=1 is not below yarn.fast=1"));
  REQUIRE_THAT(rotary({.rotary_share = 0.25}),
               Contains("rotary_share=0.25 of head_dim=4 is less than a pair"));
}

}  // namespace
}  // namespace tessera
