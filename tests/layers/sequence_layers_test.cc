// SPDX-License-Identifier: Apache-2.0
// Embeddings, softmaxes, attention and blocks: weights, formulas and errors.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/check/numeric_gradient.h"
#include "core/ops/elementwise.h"
#include "layers/attention/dot_product_attention.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/models/transformer.h"
#include "layers/norms/norms.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"

namespace tessera {
namespace {

using Catch::Contains;
using Values = std::vector<double>;

// A sequence of distinct values.
Tensor hidden(LayerTrial& trial, int64_t seq = 5, int64_t embed = 8) {
  Values values;
  for (int64_t i = 0; i < 2 * seq * embed; ++i) values.push_back(std::sin(0.37 * i * i));
  return trial.in("x", fmt::format("f32[\"batch=2 seq={} embed={}\"]", seq, embed), values);
}

Values attended(const DotProductAttention::HParams& p, const ReferenceInputs& weights = {},
                const Values& segments = {}, const Values& positions = {0, 1, 2, 3, 4},
                Mode mode = Mode::kEval) {
  LayerTrial trial(mode);
  const Tensor x = hidden(trial);
  SequenceInfo sequence;
  sequence.positions = trial.in("positions", "i32[\"seq=5\"]", positions);
  if (!segments.empty())
    sequence.segment_ids = trial.in("segments", "i32[\"batch=2 seq=5\"]", segments);
  return trial
      .run(Template<SequenceLayer>(p), weights,
           [&](const SequenceLayer& layer) { return layer(x, sequence); })
      .values;
}

TEST_CASE("Embedding looks up rows, optionally scaled by the root of their width") {
  LayerTrial trial;
  const Tensor ids = trial.in("ids", "i32[\"batch=1 seq=3\"]", {2, 0, 2});
  const Template<Embedding> p =
      Embedding::HParams{.vocab_size = 3, .model_dims = 4, .scale_sqrt_depth = true};
  const Values table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  require_close(trial.run(p, {{"w", table}}, [&](const Embedding& e) { return e(ids); }).values,
                {18, 20, 22, 24, 2, 4, 6, 8, 18, 20, 22, 24});
}

TEST_CASE("sinusoids are sines, then cosines, of decreasing frequencies") {
  LayerTrial trial;
  const Tensor positions = trial.in("positions", "i32[\"seq=2\"]", {0, 3});
  const Template<BasePositionEmbedding> p = PositionalEmbedding::HParams{.model_dims = 4};
  require_close(
      trial.run(p, {}, [&](const BasePositionEmbedding& e) { return e(positions); }).values,
      {0, 0, 1, 1, std::sin(3.0), std::sin(3e-4), std::cos(3.0), std::cos(3e-4)});
}

TEST_CASE("a learned position table refuses a longer sequence") {
  LayerTrial trial;
  const Template<BasePositionEmbedding> p =
      TrainablePositionalEmbedding::HParams{.max_seq_length = 4, .model_dims = 8};
  const Tensor positions = trial.in("positions", "i32[\"seq=5\"]", {0, 1, 2, 3, 4});
  REQUIRE_THROWS_WITH(
      trial.run(p, {}, [&](const BasePositionEmbedding& e) { return e(positions); }),
      Contains("the sequence has 5 positions, but the table only max_seq_length=4"));
}

TEST_CASE("both softmaxes give the same scores with the same matrix, whole and in chunks") {
  const Values labels = {0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4};
  const SoftmaxOptions options{.label_smoothing = 0.1, .z_loss = 0.01, .soft_cap = 5.0};
  const auto losses = [&](const Template<BaseSoftmax>& p, const Values& matrix) {
    LayerTrial trial;
    const Tensor x = hidden(trial, 6, 2);
    const Tensor ids = trial.in("labels", "i32[\"batch=2 seq=6\"]", labels);
    return trial
        .run(p, {{"w", matrix}, {"b", {1, 2, 3, 4, 5, 6, 7}}},
             [&](const BaseSoftmax& softmax) { return softmax.loss(x, ids).loss; })
        .values;
  };
  Values by_class, by_dimension(14);
  for (int i = 0; i < 14; ++i) by_class.push_back(std::cos(i));
  for (size_t i = 0; i < 7; ++i) {
    for (size_t j = 0; j < 2; ++j) by_dimension[j * 7 + i] = by_class[i * 2 + j];
  }
  SharedEmbeddingSoftmax::HParams shared{
      .vocab_size = 7, .model_dims = 2, .use_bias = true, .loss = options};
  FullSoftmax::HParams full{.vocab_size = 7, .model_dims = 2, .use_bias = true, .loss = options};
  const Values whole = losses(shared, by_class);
  require_close(losses(full, by_dimension), whole);
  for (const int64_t tokens : {0, 1, 4, 5, 8, 11, 12}) {
    shared.loss.chunk_tokens = tokens;
    require_close(losses(shared, by_class), whole);
  }
  shared.loss.chunk_tokens = -1;
  REQUIRE_THROWS_WITH(losses(shared, by_class),
                      Contains("chunk_tokens is -1, expected at least 0"));
}

// By the formula of Lin et al. (2017), with z-loss added; p may be 1.
TEST_CASE("a focal loss multiplies the cross-entropy by (1 - p)^gamma") {
  constexpr double kGamma = 1.5, kZLoss = 0.01;
  const Values x = {0.5, -0.25, 2.0, 60.0}, labels = {0, 1, 2, 2};  // Logits are x times 0, 1, 2.
  const auto score = [&](SoftmaxOptions options, Tensor CrossEntropy::*part) {
    LayerTrial trial;
    const Template<BaseSoftmax> p =
        FullSoftmax::HParams{.vocab_size = 3, .model_dims = 1, .loss = options};
    const Tensor h = trial.in("x", "f32[\"batch=4 embed=1\"]", x);
    const Tensor ids = trial.in("labels", "i32[\"batch=4\"]", labels);
    return trial
        .run(p, {{"w", {0, 1, 2}}},
             [&](const BaseSoftmax& softmax) { return softmax.loss(h, ids).*part; })
        .values;
  };
  Values plain, with_z_loss, log_p;
  for (size_t i = 0; i < x.size(); ++i) {
    const double total = std::log(1.0 + std::exp(x[i]) + std::exp(2.0 * x[i]));
    log_p.push_back(labels[i] * x[i] - total);
    plain.push_back(-std::pow(1.0 - std::exp(log_p[i]), kGamma) * log_p[i]);
    with_z_loss.push_back(plain[i] + kZLoss * total * total);
  }
  require_close(score({.focal_gamma = kGamma}, &CrossEntropy::loss), plain);
  require_close(score({.z_loss = kZLoss, .focal_gamma = kGamma}, &CrossEntropy::loss), with_z_loss);
  require_close(score({.focal_gamma = kGamma}, &CrossEntropy::log_likelihood), log_p);
  REQUIRE_THROWS_WITH(score({.label_smoothing = 0.1, .focal_gamma = kGamma}, &CrossEntropy::loss),
                      Contains("focal_gamma=1.5 and label_smoothing=0.1 exclude each other"));
}

TEST_CASE("an untied softmax cannot embed ids") {
  LayerTrial trial;
  const Template<BaseSoftmax> p = FullSoftmax::HParams{.vocab_size = 7, .model_dims = 2};
  REQUIRE_THROWS_WITH(p.instantiate()->embed_ids(trial.in("ids", "i32[\"batch=1\"]", {0})),
                      Contains("set separate_embedding_tpl"));
}

TEST_CASE("attention declares a weight for each projection, with fans of the contracted axes") {
  const PathScope path("attention");
  const Template<SequenceLayer> p = DotProductAttention::HParams{
      .model_dims = 8, .num_heads = 4, .num_kv_heads = 2, .use_bias = true};
  const auto layer = p.instantiate();
  REQUIRE(
      weight_list(layer->parameters()) ==
      std::vector<std::string>{"attention.query f32[\"embed=8 heads=4 head_dim=2\"] xavier 1",
                               "attention.key f32[\"embed=8 kv_heads=2 head_dim=2\"] xavier 1",
                               "attention.value f32[\"embed=8 kv_heads=2 head_dim=2\"] xavier 1",
                               "attention.query_bias f32[\"heads=4 head_dim=2\"] constant 0",
                               "attention.key_bias f32[\"kv_heads=2 head_dim=2\"] constant 0",
                               "attention.value_bias f32[\"kv_heads=2 head_dim=2\"] constant 0",
                               "attention.output f32[\"heads=4 head_dim=2 embed=8\"] xavier 1",
                               "attention.output_bias f32[\"embed=8\"] constant 0"});
  const Parameter& output = *layer->parameters().find("attention.output");
  REQUIRE(output.fans.in == std::vector<std::string>{"heads", "head_dim"});
  REQUIRE(output.fans.out == std::vector<std::string>{"embed"});
}

TEST_CASE("grouped-query attention is full attention with repeated key heads") {
  DotProductAttention::HParams p{.model_dims = 8, .num_heads = 4, .num_kv_heads = 2};
  Values key, repeated;
  for (int i = 0; i < 8 * 2 * 2; ++i) key.push_back(std::sin(1.3 * i));
  for (size_t embed = 0; embed < 8; ++embed) {
    for (size_t head = 0; head < 4; ++head) {
      for (size_t dim = 0; dim < 2; ++dim) repeated.push_back(key[embed * 4 + head / 2 * 2 + dim]);
    }
  }
  const Values grouped = attended(p, {{"key", key}, {"value", key}});
  p.num_kv_heads = 4;
  require_close(grouped, attended(p, {{"key", repeated}, {"value", repeated}}));
}

TEST_CASE("a combined QKV projection equals three separate ones") {
  DotProductAttention::HParams p{.model_dims = 8, .num_heads = 2, .use_bias = true};
  Values parts[3], biases[3], combined(8 * 3 * 8), combined_bias;
  for (size_t part = 0; part < 3; ++part) {
    for (size_t i = 0; i < 64; ++i) {
      parts[part].push_back(std::sin(1.1 * static_cast<double>(i * i + part)));
      combined[(i / 8 * 3 + part) * 8 + i % 8] = parts[part].back();
    }
    for (size_t i = 0; i < 8; ++i) biases[part].push_back(0.1 * static_cast<double>(i + part));
    combined_bias.insert(combined_bias.end(), biases[part].begin(), biases[part].end());
  }
  const Values separate = attended(p, {{"query", parts[0]},
                                       {"key", parts[1]},
                                       {"value", parts[2]},
                                       {"query_bias", biases[0]},
                                       {"key_bias", biases[1]},
                                       {"value_bias", biases[2]}});
  p.combine_qkv = true;
  require_close(attended(p, {{"qkv", combined}, {"qkv_bias", combined_bias}}), separate);
}

TEST_CASE("an initial per-dim scale is the usual scale") {
  DotProductAttention::HParams p{.model_dims = 8, .num_heads = 2};
  const Values usual = attended(p);
  p.use_per_dim_scale = true;
  require_close(attended(p), usual);
  p.use_per_dim_scale = false;
  p.query_scale = 0.5;
  require_close(attended(p), usual);  // 1/√4.
  p.query_scale = 0.25;
  REQUIRE(attended(p) != usual);
}

TEST_CASE("queries and keys can be normalised per head") {
  const RmsNorm::HParams over_head{.model_dims = 4, .axis = "head_dim"};
  const DotProductAttention::HParams p{
      .model_dims = 8, .num_heads = 2, .query_norm_tpl = over_head, .key_norm_tpl = over_head};
  Values query, large;
  for (int i = 0; i < 64; ++i) query.push_back(std::sin(1.3 * i));
  for (const double value : query) large.push_back(1000 * value);
  require_close(attended(p, {{"query", query}}), attended(p, {{"query", large}}), 1e-4);
}

TEST_CASE("packed documents do not attend to each other") {
  const DotProductAttention::HParams p{
      .model_dims = 8, .num_heads = 2, .rotary_tpl = RotaryPositionEmbedding::HParams{}};
  const Values segments = {1, 1, 2, 2, 2, 1, 1, 1, 1, 1};
  const Values packed = attended(p, {}, segments);
  // Rotary attention depends on distances only: shifting all positions changes nothing.
  require_close(attended(p, {}, segments, {7, 8, 9, 10, 11}), packed);
  // Row 0's third token starts a document: it attends to itself only, which gives its value.
  const Values one_segment = attended(p);
  REQUIRE(std::equal(packed.begin(), packed.begin() + 16, one_segment.begin()));
  REQUIRE(packed[16] != one_segment[16]);
  REQUIRE(std::equal(packed.begin() + 40, packed.end(), one_segment.begin() + 40));
}

TEST_CASE("attention dropout scales the remaining probabilities, in training only") {
  DotProductAttention::HParams p{
      .model_dims = 8, .num_heads = 4, .num_kv_heads = 2, .logit_cap = 3.0};
  const Values segments = {1, 1, 2, 2, 2, 1, 1, 1, 1, 1}, positions = {0, 1, 2, 3, 4};
  const Values fused = attended(p, {}, segments, positions, Mode::kTrain);
  p.dropout_rate = 1e-12;  // Drops nothing: the unfused path must agree with the fused op.
  require_close(attended(p, {}, segments, positions, Mode::kTrain), fused, 1e-9);
  p.dropout_rate = 0.5;
  REQUIRE(attended(p, {}, segments, positions, Mode::kTrain) != fused);
  REQUIRE(attended(p, {}, segments, positions, Mode::kEval) == fused);
}

TEST_CASE("indivisible head counts are refused with both numbers") {
  const auto refusal = [](const DotProductAttention::HParams& p) {
    try {
      Template<SequenceLayer>(p).instantiate();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  REQUIRE(refusal({.model_dims = 8, .num_heads = 3}) ==
          "num_heads=3 does not divide model_dims=8; change one, or set dims_per_head");
  REQUIRE(
      refusal({.model_dims = 8, .num_heads = 4, .num_kv_heads = 3}) ==
      "num_kv_heads=3 does not divide num_heads=4; query heads share key heads in equal groups");
  REQUIRE(refusal({.model_dims = 8, .num_heads = 4, .num_kv_heads = 2, .combine_qkv = true}) ==
          "combine_qkv needs equal num_kv_heads and num_heads, got num_kv_heads=2 and num_heads=4");
  REQUIRE(refusal({.model_dims = 8, .num_heads = 3, .dims_per_head = 5}) == "no error");
}

// Simple layers, so that the expected numbers are easy to compute.
class Doubling final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = Doubling;
    static constexpr std::string_view kName = "Doubling";
    FIELDS()
  };
  explicit Doubling(const HParams&) {}
  Tensor fprop(Tensor x, const SequenceInfo&) const override { return x * 2.0; }
};

class Squaring final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Squaring;
    static constexpr std::string_view kName = "Squaring";
    FIELDS()
  };
  explicit Squaring(const HParams&) {}
  Tensor fprop(Tensor x) const override { return square(x); }
};

class PlusOne final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = PlusOne;
    static constexpr std::string_view kName = "PlusOne";
    FIELDS()
  };
  explicit PlusOne(const HParams&) {}
  Tensor fprop(Tensor x) const override { return x + 1.0; }
};

TEST_CASE("NormPolicy decides where a block has its norms") {
  const auto of_three = [](NormPolicy policy, bool parallel = false) {
    LayerTrial trial;
    const Tensor x = trial.in("x", "f32[\"batch=1 seq=1 embed=1\"]", {3});
    const TransformerBlock::HParams p{.norm_policy = policy,
                                      .attention_tpl = Doubling::HParams{},
                                      .ffn_tpl = Squaring::HParams{},
                                      .norm_tpl = PlusOne::HParams{},
                                      .parallel = parallel};
    return trial
        .run(Template<SequenceLayer>(p), {},
             [&](const SequenceLayer& layer) { return layer(x, {}); })
        .values.front();
  };
  // a = 3 + 2·(3+1) = 11, 11 + (11+1)².
  REQUIRE(of_three(NormPolicy::kPre) == 155);
  // a = (3 + 2·3) + 1 = 10, (10 + 10²) + 1.
  REQUIRE(of_three(NormPolicy::kPost) == 111);
  // a = 3 + (2·3 + 1) = 10, 10 + (10² + 1).
  REQUIRE(of_three(NormPolicy::kPostSkip) == 111);
  // a = 3 + (2·(3+1) + 1) = 12, 12 + ((12+1)² + 1).
  REQUIRE(of_three(NormPolicy::kPrimerHybrid) == 182);
  // 3 + 2·(3+1) + (3+1)².
  REQUIRE(of_three(NormPolicy::kPre, true) == 27);
}

}  // namespace
}  // namespace tessera
