// SPDX-License-Identifier: Apache-2.0
// LatentAttention against a plain implementation, its gradients against finite differences, its
// layouts on meshes, and what it refuses.
#include "layers/attention/latent_attention.h"

#include <cmath>

#include "core/base/error.h"
#include "layers/attention/dot_product_attention.h"
#include "tasks/task/config/experiment.h"
#include "tasks/testing/tested_layer.h"
#include "tests/support/catch.h"
#include "tests/support/layer_trial.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Catch::Contains;
using Values = std::vector<double>;

constexpr size_t kRows = 2, kTokens = 4, kWidth = 4, kHeads = 2, kAll = kRows * kTokens;

// Two rows of packed documents: segments and positions within them.
const Values kSegments = {1, 1, 2, 2, 1, 1, 1, 0}, kPositions = {0, 1, 0, 1, 0, 1, 2, 3};

struct Variant {
  std::string name;
  LatentAttention::HParams p;
};

std::vector<Variant> variants() {
  const LatentAttention::HParams base{.model_dims = kWidth,
                                      .num_heads = kHeads,
                                      .kv_lora_rank = 2,
                                      .q_lora_rank = 4,
                                      .rope_dims = 2};
  std::vector<Variant> all = {{"DeepSeek-V3", base}, {"values wider than keys", base}};
  all[1].p.value_dims_per_head = 6;
  LatentAttention::HParams p = base;
  p.q_lora_rank = {};
  p.dims_per_head = 3;
  p.value_dims_per_head = 1;
  p.rope_dims = 4;
  p.rotary_tpl = RotaryPositionEmbedding::HParams{};  // Pairs (i, i + 2).
  all.push_back({"DeepSeek-V2-Lite", p});
  p = base;
  p.rope_source = RotarySource::kLatents;
  p.normalize_latents = false;
  p.use_bias = true;
  all.push_back({"JAXformer", p});
  p.rope_dims = 0;
  p.causal = false;
  p.query_scale = 0.3;
  all.push_back({"without rotary dimensions, not causal", p});
  return all;
}

// The plain implementation. A weight is looked up by name; it and all results are row-major.
class Plain {
 public:
  Plain(const LatentAttention::HParams& p, const ReferenceInputs& weights)
      : p_(p),
        weights_(weights),
        dims_(static_cast<size_t>(p.dims_per_head.get_or(kWidth / kHeads))),
        values_(static_cast<size_t>(p.value_dims_per_head.get_or(static_cast<int64_t>(dims_)))),
        rope_(static_cast<size_t>(p.rope_dims)) {}

  Values result(const Values& x) const {
    const Values latent = normed(projected(x, kWidth, "kv_down"), "kv_norm");
    const bool has_latent = p_.q_lora_rank.has();
    const Values source = has_latent ? normed(projected(x, kWidth, "q_down"), "q_norm") : x;
    const size_t rank = latent.size() / kAll, width = source.size() / kAll;
    const Values query = projected(source, width, "query"), key = projected(latent, rank, "key"),
                 value = projected(latent, rank, "value");
    Values of_query = source, of_key = x;
    if (p_.rope_source == RotarySource::kLatents) of_query = of_key = beside(latent, source);
    const Values query_rope = rotated(projected(of_query, of_query.size() / kAll, "query_rope")),
                 key_rope = rotated(projected(of_key, of_key.size() / kAll, "key_rope"));
    Values context(kAll * kHeads * values_, 0.0);
    for (size_t token = 0; token < kAll; ++token)
      for (size_t head = 0; head < kHeads; ++head) {
        Values weights(kAll, 0.0);
        double sum = 0.0;
        for (size_t other = 0; other < kAll; ++other) {
          if (!sees(token, other)) continue;
          double score = 0.0;
          for (size_t i = 0; i < dims_; ++i)
            score += query[(token * kHeads + head) * dims_ + i] *
                     key[(other * kHeads + head) * dims_ + i];
          for (size_t i = 0; i < rope_; ++i)
            score += query_rope[(token * kHeads + head) * rope_ + i] * key_rope[other * rope_ + i];
          const double usual = 1.0 / std::sqrt(static_cast<double>(dims_ + rope_));
          sum += weights[other] = std::exp(score * p_.query_scale.get_or(usual));
        }
        for (size_t other = 0; other < kAll; ++other)
          for (size_t i = 0; i < values_; ++i)
            context[(token * kHeads + head) * values_ + i] +=
                weights[other] / sum * value[(other * kHeads + head) * values_ + i];
      }
    return projected(context, kHeads * values_, "output");
  }

 private:
  bool sees(size_t token, size_t other) const {
    return token / kTokens == other / kTokens && kSegments[token] == kSegments[other] &&
           (other <= token || !p_.causal);
  }

  // Rows of x times the weight, plus its bias if there is one. Empty without the weight.
  Values projected(const Values& x, size_t from, const std::string& name) const {
    if (!weights_.contains(name)) return {};
    const Values& matrix = weights_.at(name);
    const size_t to = matrix.size() / from;
    Values y(x.size() / from * to, 0.0);
    for (size_t row = 0; row < x.size() / from; ++row)
      for (size_t o = 0; o < to; ++o) {
        if (p_.use_bias) y[row * to + o] = weights_.at(name + "_bias")[o];
        for (size_t i = 0; i < from; ++i) y[row * to + o] += x[row * from + i] * matrix[i * to + o];
      }
    return y;
  }

  Values normed(Values x, const std::string& name) const {
    if (!p_.normalize_latents) return x;
    const Values& scale = weights_.at(name + ".scale");
    for (size_t row = 0; row < kAll; ++row) {
      double squares = 0.0;
      for (size_t i = 0; i < scale.size(); ++i) squares += std::pow(x[row * scale.size() + i], 2.0);
      const double mean = squares / static_cast<double>(scale.size());
      for (size_t i = 0; i < scale.size(); ++i)
        x[row * scale.size() + i] *= scale[i] / std::sqrt(mean + p_.norm_epsilon);
    }
    return x;
  }

  static Values beside(const Values& a, const Values& b) {
    Values both;
    const size_t left = a.size() / kAll, right = b.size() / kAll;
    for (size_t row = 0; row < kAll; ++row) {
      both.insert(both.end(), a.data() + row * left, a.data() + (row + 1) * left);
      both.insert(both.end(), b.data() + row * right, b.data() + (row + 1) * right);
    }
    return both;
  }

  // x[token, …, rope]: each pair is a complex number that turns with the position.
  Values rotated(Values x) const {
    const bool interleaved = p_.rotary_tpl.as<RotaryPositionEmbedding::HParams>().interleaved;
    for (size_t row = 0; rope_ > 0 && row < x.size() / rope_; ++row)
      for (size_t pair = 0; pair < rope_ / 2; ++pair) {
        const double angle =
            kPositions[row * kAll * rope_ / x.size()] *
            std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(rope_));
        double& a = x[row * rope_ + (interleaved ? 2 * pair : pair)];
        double& b = x[row * rope_ + (interleaved ? 2 * pair + 1 : pair + rope_ / 2)];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
    return x;
  }

  const LatentAttention::HParams& p_;
  const ReferenceInputs& weights_;
  size_t dims_, values_, rope_;
};

// Different values for every weight and for x.
ReferenceInputs numbers(const LatentAttention::HParams& p) {
  return distinct_values(Template<SequenceLayer>(p).instantiate()->parameters(),
                         {{"x", kAll * kWidth}});
}

TestedLayer tested(const LatentAttention::HParams& p, LayerSetting setting = {}) {
  setting.values = numbers(p);
  setting.values["segment_ids"] = kSegments;
  setting.values["positions"] = kPositions;
  return TestedLayer(
      Template<SequenceLayer>(p),
      {{"x", "f32[\"batch=2 seq=4 embed=4\"]"},
       {"segment_ids", "i32[\"batch=2 seq=4\"]"},
       {"positions", "i32[\"batch=2 seq=4\"]"}},
      [](const SequenceLayer& layer, const NamedTensors& in) {
        return layer(in.at("x"),
                     {.segment_ids = in.at("segment_ids"), .positions = in.at("positions")});
      },
      setting);
}

const std::string kByHeads = "heads -> mdl, kv_heads -> mdl";

std::vector<LayerSetting> meshes() {
  const MeshConfig four{.ici_mesh_shape = {1, 2, 2}};
  return {
      {.mesh = four,
       .rules = {.weights = "embed -> data, kv_latent -> data, q_latent -> data, " + kByHeads,
                 .activations = "residual: seq -> mdl, batch -> data, " + kByHeads}},
      {.mesh = four,  // The latents are split, and heads where those are not.
       .rules = {.weights = "kv_latent -> mdl, q_latent -> mdl, " + kByHeads,
                 .activations = "batch -> data, kv_latent -> mdl, q_latent -> mdl, " + kByHeads}},
      {.mesh = four,  // Each device has a part of the sequence, and all-to-alls give it heads.
       .rules = {.weights = "embed -> mdl",
                 .activations = "batch -> data, seq -> mdl, attention: seq -> (), attention: heads "
                                "-> mdl, attention: kv_heads -> mdl"}},
      {.mesh = four, .rules = {.activations = "batch -> data, seq -> mdl"}}};  // A ring.
}

TEST_CASE("latent attention is what a plain implementation computes, on one device and on four") {
  for (const Variant& variant : variants()) {
    INFO(variant.name);
    const ReferenceInputs values = numbers(variant.p);
    const Values expected = Plain(variant.p, values).result(values.at("x"));
    require_close(tested(variant.p).result(), expected, 1e-9);
    for (const LayerSetting& setting : meshes()) {
      INFO("activations: " << setting.rules.activations);
      require_close(tested(variant.p, setting).result(), expected, 1e-9);
    }
  }
}

TEST_CASE("latent attention's gradients are those of finite differences, also on a mesh") {
  for (const Variant& variant : variants()) {
    INFO(variant.name);
    tested(variant.p).check_gradients();
  }
  for (const LayerSetting& setting : meshes()) {
    INFO("activations: " << setting.rules.activations);
    tested(variants()[3].p, setting).check_gradients();
  }
}

TEST_CASE("latent attention whose latent is x itself is multi-head attention") {
  // Without norm, bias and rotary part, and with a down-projection that changes nothing.
  const LatentAttention::HParams p{.model_dims = kWidth,
                                   .num_heads = kHeads,
                                   .kv_lora_rank = kWidth,
                                   .rope_dims = 0,
                                   .normalize_latents = false};
  ReferenceInputs values = numbers(p);
  values["kv_down"] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
  const auto call = [](const SequenceLayer& layer, const NamedTensors& in) {
    return layer(in.at("x"), {});
  };
  const OperandTypes operands = {{"x", "f32[\"batch=2 seq=4 embed=4\"]"}};
  const Values got =
      TestedLayer(Template<SequenceLayer>(p), operands, call, {.values = values}).result();
  values.erase("kv_down");
  const DotProductAttention::HParams usual{.model_dims = kWidth, .num_heads = kHeads};
  require_close(
      got, TestedLayer(Template<SequenceLayer>(usual), operands, call, {.values = values}).result(),
      1e-9);
}

TEST_CASE("latent attention declares the projections of its variant, with fans of their inputs") {
  const auto layer = Template<SequenceLayer>(variants()[3].p).instantiate();
  REQUIRE(weight_list(layer->parameters()) ==
          std::vector<std::string>{"kv_down f32[\"embed=4 kv_latent=2\"] xavier 1",
                                   "kv_down_bias f32[\"kv_latent=2\"] constant 0",
                                   "key f32[\"kv_latent=2 kv_heads=2 head_dim=2\"] xavier 1",
                                   "key_bias f32[\"kv_heads=2 head_dim=2\"] constant 0",
                                   "value f32[\"kv_latent=2 kv_heads=2 head_dim=2\"] xavier 1",
                                   "value_bias f32[\"kv_heads=2 head_dim=2\"] constant 0",
                                   "key_rope f32[\"latent=6 head_dim=2\"] xavier 1",
                                   "key_rope_bias f32[\"head_dim=2\"] constant 0",
                                   "q_down f32[\"embed=4 q_latent=4\"] xavier 1",
                                   "q_down_bias f32[\"q_latent=4\"] constant 0",
                                   "query f32[\"q_latent=4 heads=2 head_dim=2\"] xavier 1",
                                   "query_bias f32[\"heads=2 head_dim=2\"] constant 0",
                                   "query_rope f32[\"latent=6 heads=2 head_dim=2\"] xavier 1",
                                   "query_rope_bias f32[\"heads=2 head_dim=2\"] constant 0",
                                   "output f32[\"heads=2 head_dim=2 embed=4\"] xavier 1",
                                   "output_bias f32[\"embed=4\"] constant 0"});
  const Parameter& key = *layer->parameters().find("key");
  REQUIRE(key.fans.in == std::vector<std::string>{"kv_latent"});
  REQUIRE(key.fans.out == std::vector<std::string>{"kv_heads", "head_dim"});
}

TEST_CASE("latent attention refuses sizes that make no sense") {
  const auto refusal = [](auto change) {
    LatentAttention::HParams p = variants()[0].p;
    change(p);
    return error_of([&] { Template<SequenceLayer>(p).instantiate(); });
  };
  using P = LatentAttention::HParams;
  REQUIRE(refusal([](P& p) { p.num_heads = 3; }) ==
          "num_heads=3 does not divide model_dims=4; change one, or set dims_per_head");
  REQUIRE_THAT(refusal([](P& p) { p.num_heads = 0; }),
               Contains("LatentAttention: num_heads is 0, expected 1 to"));
  REQUIRE_THAT(refusal([](P& p) { p.kv_lora_rank = 0; }),
               Contains("LatentAttention: kv_lora_rank is 0, expected 1 to"));
  REQUIRE_THAT(refusal([](P& p) { p.q_lora_rank = 0; }),
               Contains("LatentAttention: q_lora_rank is 0, expected 1 to"));
  REQUIRE_THAT(refusal([](P& p) { p.value_dims_per_head = -1; }),
               Contains("LatentAttention: value_dims_per_head is -1, expected 1 to"));
  REQUIRE_THAT(refusal([](P& p) { p.rope_dims = 3; }),
               Contains("rope_dims is 3, expected an even number"));
  REQUIRE_THAT(refusal([](P& p) { p.rope_dims = -2; }),
               Contains("rope_dims is -2, expected at least 0"));
  REQUIRE_THAT(refusal([](P& p) { p.rotary_tpl = {}; }),
               Contains("rope_dims is 2, but rotary_tpl is unset; set it, or rope_dims=0"));
  REQUIRE_THAT(refusal([](P& p) {
                 p.q_lora_rank = {};
                 p.rope_source = RotarySource::kLatents;
               }),
               Contains("rope_source=latents needs the latents of keys and of queries") &&
                   Contains("q_lora_rank is unset; set it, or rope_source=input"));
}

}  // namespace
}  // namespace tessera
