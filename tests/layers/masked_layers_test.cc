// SPDX-License-Identifier: Apache-2.0
// Layers and settings of masked language models against their formulas. Whole models are compared
// with transformers in tests/tasks/interop, and on meshes in layouts_test.cc.
#include <cmath>

#include "core/base/error.h"
#include "layers/attention/dot_product_attention.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/models/language_model.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

TEST_CASE("TypeEmbedding adds the row of each token's type, or of type 0") {
  const Values table = {10, 20, 30, 40};
  const auto added = [&](bool has_types) {
    LayerTrial trial;
    const Tensor x = trial.in("x", "f32[\"batch=1 seq=2 embed=2\"]", {1, 2, 3, 4});
    const Tensor types = has_types ? trial.in("types", "i32[\"batch=1 seq=2\"]", {1, 0}) : Tensor();
    return trial
        .run(Template<TypeEmbedding>(TypeEmbedding::HParams{.model_dims = 2}), {{"w", table}},
             [&](const TypeEmbedding& layer) { return layer(x, types); })
        .values;
  };
  require_close(added(true), {31, 42, 13, 24});
  require_close(added(false), {11, 22, 13, 24});
}

TEST_CASE("HeadTransform computes norm(activation(x·w + b))") {
  LayerTrial trial;
  const Tensor x = trial.in("x", "f32[\"batch=1 seq=1 embed=2\"]", {1, 2});
  const HeadTransform::HParams p{.model_dims = 2, .activation_tpl = ReLU::HParams{}};
  // (1·3 + 2·1 + 1, 1·-1 + 2·-1 + 1) = (6, -2), then (6, 0): mean 3, deviation 3.
  const double unit = 3 / std::sqrt(9 + 1e-6);
  require_close(
      trial.apply(
          p, x,
          {{"w", {3, -1, 1, -1}}, {"b", {1, 1}}, {"norm.scale", {2, 4}}, {"norm.bias", {10, 20}}}),
      {10 + 2 * unit, 20 - 4 * unit});
}

TEST_CASE("a table of positions may have rows before that of position 0") {
  const Template<BasePositionEmbedding> p =
      TrainablePositionalEmbedding::HParams{.max_seq_length = 4, .model_dims = 1, .first_row = 2};
  const auto rows = [&](const std::string& type, const Values& positions) {
    LayerTrial trial;
    const Tensor at = trial.in("positions", type, positions);
    return trial
        .run(p, {{"w", {1, 2, 3, 4}}},
             [&](const BasePositionEmbedding& layer) { return layer(at); })
        .values;
  };
  REQUIRE(rows("i32[\"seq=2\"]", {1, 0}) == Values{4, 3});
  REQUIRE_THROWS_WITH(rows("i32[\"seq=3\"]", {0, 1, 2}),
                      Catch::Contains("the sequence has 3 positions, but the table only "
                                      "max_seq_length=4, of which first_row=2 are not used"));
}

TEST_CASE("a window without causal is of the tokens before and after") {
  const auto means = [](int64_t window) {
    LayerTrial trial;
    const Tensor x = trial.in("x", "f32[\"batch=1 seq=4 embed=1\"]", {1, 2, 3, 6});
    DotProductAttention::HParams p{.model_dims = 1, .num_heads = 1, .causal = false};
    if (window > 0) p.window = window;
    // With queries of 0 the result is the mean of what a token attends to.
    return trial
        .run(Template<SequenceLayer>(p),
             {{"query", {0}}, {"key", {1}}, {"value", {1}}, {"output", {1}}},
             [&](const SequenceLayer& layer) { return layer(x, {}); })
        .values;
  };
  require_close(means(0), {3, 3, 3, 3}, 1e-6);
  require_close(means(1), {1, 2, 3, 6}, 1e-6);
  require_close(means(2), {1.5, 2, 11.0 / 3, 4.5}, 1e-6);
  require_close(means(4), {3, 3, 3, 3}, 1e-6);
}

TEST_CASE("the norm of embeddings is before the blocks, and the head before the softmax") {
  LayerTrial trial;
  trial.feature("ids", "i32[\"batch=1 seq=1\"]", {1});
  const TransformerLm::HParams p{
      .vocab_size = 2,
      .model_dims = 2,
      .num_layers = 1,
      .num_heads = 1,
      .hidden_dims = 1,
      .embedding_ln_tpl = LayerNorm::HParams{.epsilon = 0.0, .use_bias = false},
      .final_ln_tpl = {},
      .head_tpl = HeadTransform::HParams{
          .activation_tpl = Identity::HParams{},
          .norm_tpl = LayerNorm::HParams{.epsilon = 0.0, .use_scale = false, .use_bias = false},
          .use_bias = false}};
  // The blocks add 0: their last matrices are 0.
  const std::string block = "transformer.x_layers[0].";
  const ReferenceInputs weights = {{"softmax.w", {1, 0, 5, 1}},
                                   {"embedding_ln.scale", {1, 3}},
                                   {block + "attention.output", {0, 0, 0, 0}},
                                   {block + "ffn.down", {0, 0}},
                                   {"head.w", {1, 2, 0, 1}}};
  // The row (5, 1) is normed to (1, -1)·(1, 3) = (1, -3), mapped to (1, -1), and normed.
  const auto logits = trial.run(Template<TransformerLm>(p), weights, [&](const TransformerLm& lm) {
    return lm.logits(
        Features{.tensors = {{"ids", trial.in("ids", "i32[\"batch=1 seq=1\"]", {1})}}});
  });
  require_close(logits.values, {1, 4}, 1e-6);
}

TEST_CASE("a block may attend to its input without a norm") {
  const auto refusal = [](NormPolicy policy) {
    const TransformerBlock::HParams block{.norm_policy = policy, .use_attention_norm = false};
    const TransformerLm::HParams p{
        .vocab_size = 2,
        .model_dims = 2,
        .num_layers = 1,
        .num_heads = 1,
        .hidden_dims = 1,
        .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block}};
    try {
      const auto lm = Template<TransformerLm>(p).instantiate();
      return std::string(lm->parameters().find("transformer.x_layers[0].attention_norm.scale") ==
                                 nullptr
                             ? "no norm"
                             : "a norm");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  REQUIRE(refusal(NormPolicy::kPre) == "no norm");
  REQUIRE(refusal(NormPolicy::kPrimerHybrid) == "no norm");
  REQUIRE_THAT(refusal(NormPolicy::kPost), Catch::Contains("use_attention_norm=false"));
}

}  // namespace
}  // namespace tessera
