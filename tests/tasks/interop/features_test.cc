// SPDX-License-Identifier: Apache-2.0
// Every feature of the families matters: without it the logits of a golden model are far from those
// of transformers.
#include <cmath>
#include <functional>

#include "layers/attention/gated_delta_net.h"
#include "layers/attention/latent_attention.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/norms/norms.h"
#include "tasks/families/parts.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

using Block = TransformerBlock::HParams;

RotaryPositionEmbedding::HParams& rotary_in(Block& block) {
  return rotary_of(block)->as<RotaryPositionEmbedding::HParams>();
}
// Null in a dense layer.
TopKRouter::HParams* router_in(Block& block) {
  if (!block.ffn_tpl.holds<MoeFeedForward::HParams>()) return nullptr;
  return &block.ffn_tpl.as<MoeFeedForward::HParams>().router_tpl.as<TopKRouter::HParams>();
}

struct Removal {
  const char* golden;
  const char* feature;
  void (*remove)(Block& block);
};

const std::vector<Removal> kRemovals = {
    {"llama_scaled", "slower rotation of Llama 3.1",
     [](Block& b) { rotary_in(b).stretch.reset(); }},
    {"llama_stretched", "positions divided", [](Block& b) { rotary_in(b).min_timescale = 1.0; }},
    {"llama_biases", "the base of rotation",
     [](Block& b) { rotary_in(b).max_timescale = 10000.0; }},
    {"llama_biases", "the activation",
     [](Block& b) { b.ffn_tpl.as<FeedForward::HParams>().activation_tpl = SiLU::HParams{}; }},
    {"qwen3_yarn", "YaRN", [](Block& b) { rotary_in(b).yarn.reset(); }},
    {"qwen3_yarn", "YaRN's factor", [](Block& b) { rotary_in(b).output_scale = 1.0; }},
    {"llama_dynamic", "a growing base", [](Block& b) { rotary_in(b).dynamic.reset(); }},
    {"phi3_long", "divisors of long sequences",
     [](Block& b) { rotary_in(b).long_sequences->length = 100.0; }},
    {"mistral_window", "a window", [](Block& b) { attention_in(b).window.reset(); }},
    {"gemma2", "the scale of queries", [](Block& b) { attention_in(b).query_scale.reset(); }},
    {"gemma2", "the cap of scores", [](Block& b) { attention_in(b).logit_cap = 0.0; }},
    {"gemma3", "positions of layers with a window",
     [](Block& b) {
       if (attention_in(b).window.has()) rotary_in(b).max_timescale = 1e6;
     }},
    {"smollm3", "layers without positions",
     [](Block& b) { attention_in(b).rotary_tpl = RotaryPositionEmbedding::HParams{}; }},
    {"pythia", "a rotated part", [](Block& b) { rotary_in(b).rotary_share = 1.0; }},
    {"pythia", "parallel sublayers", [](Block& b) { b.parallel = false; }},
    {"mixtral", "the sum of chosen scores",
     [](Block& b) { router_in(b)->normalize_weights = false; }},
    {"qwen3_moe_scores", "scores that are not divided",
     [](Block& b) {
       if (router_in(b) != nullptr) router_in(b)->normalize_weights = true;
     }},
    {"deepseek_v2", "groups of experts",
     [](Block& b) {
       if (router_in(b) != nullptr) router_in(b)->num_groups = router_in(b)->top_groups = 1;
     }},
    {"deepseek_v2", "the scale of experts",
     [](Block& b) {
       if (router_in(b) != nullptr) router_in(b)->weight_scale = 1.0;
     }},
    {"gpt_oss", "the clipped sum of an expert",
     [](Block& b) { b.ffn_tpl.as<MoeFeedForward::HParams>().up_limit.reset(); }},
    {"gpt_oss", "the offset of an expert's product",
     [](Block& b) { b.ffn_tpl.as<MoeFeedForward::HParams>().up_offset = 0.0; }},
    {"gpt_oss", "the slope of an expert's activation",
     [](Block& b) {
       auto& experts = b.ffn_tpl.as<MoeFeedForward::HParams>();
       experts.activation_tpl.as<Swish::HParams>().slope = 1.0;
     }},
    {"qwen3_next", "the delta rule",
     [](Block& b) {
       if (b.attention_tpl.holds<GatedDeltaNet::HParams>())
         b.attention_tpl.as<GatedDeltaNet::HParams>().use_delta_rule = false;
     }},
    {"bert", "attention to later tokens", [](Block& b) { attention_in(b).causal = true; }},
    {"bert_odd", "the epsilon of norms",
     [](Block& b) { b.norm_tpl.as<LayerNorm::HParams>().epsilon = 1e-12; }},
    {"modernbert", "a window to both sides", [](Block& b) { attention_in(b).window.reset(); }},
    {"modernbert", "later tokens in a window", [](Block& b) { attention_in(b).causal = true; }},
    {"modernbert", "positions of layers with a window",
     [](Block& b) {
       if (attention_in(b).window.has()) rotary_in(b).max_timescale = 160000.0;
     }},
    {"deepseek_v3_yarn", "DeepSeek's factor of scores",
     [](Block& b) { b.attention_tpl.as<LatentAttention::HParams>().query_scale.reset(); }},
    {"t5", "scores that are not divided", [](Block& b) { attention_in(b).query_scale.reset(); }},
    {"t5", "ranges of distances",
     [](Block& b) {
       attention_in(b).position_bias_tpl.as<RelativePositionBias::HParams>().max_distance = 90;
     }},
    {"t5", "scores of cross-attention that are not divided",
     [](Block& b) {
       b.cross_attention_tpl.as<DotProductAttention::HParams>().query_scale.reset();
     }},
};

TEST_CASE("without any feature of a family its logits are far from those of transformers") {
  for (const Removal& removal : kRemovals) {
    INFO(removal.golden << ": " << removal.feature);
    const TemporaryDirectory directory;
    ExperimentConfig config = hf_experiment(removal.golden);
    import_hf(config, hf_golden(removal.golden), directory / "run");
    const HfScores scores = read_scores(hf_golden(removal.golden));
    const auto error = [&] {
      return largest_difference(
          logits_of(config, directory / "run", scores.ids, {scores.encoder_ids}), scores.logits);
    };
    const double with = error();
    for_each_block(lm_of(config).stacked_transformer_tpl, removal.remove);
    REQUIRE(error() > 100.0 * with);
  }
}

struct ModelRemoval {
  const char* golden;
  const char* feature;
  void (*remove)(TransformerLm::HParams& lm);
};

const std::vector<ModelRemoval> kModelRemovals = {
    {"bert", "the norm of embeddings",
     [](TransformerLm::HParams& lm) {
       lm.embedding_ln_tpl.as<LayerNorm::HParams>().epsilon = 1.0;
     }},
    {"bert", "the norm before the softmax",
     [](TransformerLm::HParams& lm) {
       lm.head_tpl.as<HeadTransform::HParams>().norm_tpl.as<LayerNorm::HParams>().epsilon = 1.0;
     }},
    {"bert_odd", "the activation before the softmax",
     [](TransformerLm::HParams& lm) {
       lm.head_tpl.as<HeadTransform::HParams>().activation_tpl = ReLU::HParams{};
     }},
    {"roberta", "the first position",
     [](TransformerLm::HParams& lm) {
       lm.position_emb_tpl.as<TrainablePositionalEmbedding::HParams>().first_row = 0;
     }},
    {"t5", "the scale of the decoder's output",
     [](TransformerLm::HParams& lm) {
       lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().loss.multiplier = 1.0;
     }},
    {"t5_v1_1", "later tokens in the encoder's biases",
     [](TransformerLm::HParams& lm) {
       for_each_block(
           lm.encoder_tpl.as<TransformerEncoder::HParams>().stacked_transformer_tpl, [](Block& b) {
             attention_in(b).position_bias_tpl.as<RelativePositionBias::HParams>().bidirectional =
                 false;
           });
     }},
    {"t5_v1_1", "the epsilon of the encoder's norm",
     [](TransformerLm::HParams& lm) {
       lm.encoder_tpl.as<TransformerEncoder::HParams>().final_ln_tpl = RmsNorm::HParams{};
     }},
};

TEST_CASE(
    "without any feature of masked models and encoders their logits are far from those of "
    "transformers") {
  for (const ModelRemoval& removal : kModelRemovals) {
    INFO(removal.golden << ": " << removal.feature);
    const TemporaryDirectory directory;
    ExperimentConfig config = hf_experiment(removal.golden);
    import_hf(config, hf_golden(removal.golden), directory / "run");
    const HfScores scores = read_scores(hf_golden(removal.golden));
    const auto error = [&] {
      return largest_difference(
          logits_of(config, directory / "run", scores.ids, {scores.encoder_ids}), scores.logits);
    };
    const double with = error();
    removal.remove(lm_of(config));
    REQUIRE(error() > 100.0 * with);
  }
}

TEST_CASE("without scaled embeddings or capped logits a Gemma's logits are far off") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = hf_experiment("gemma2");
  import_hf(config, hf_golden("gemma2"), directory / "run");
  const HfScores scores = read_scores(hf_golden("gemma2"));
  const auto error = [&](const ExperimentConfig& of) {
    return largest_difference(logits_of(of, directory / "run", scores.ids), scores.logits);
  };
  ExperimentConfig changed = config;
  lm_of(changed).softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().scale_sqrt_depth = false;
  REQUIRE(error(changed) > 100.0 * error(config));
  changed = config;
  lm_of(changed).softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().loss.soft_cap = 0.0;
  REQUIRE(error(changed) > 100.0 * error(config));
}

}  // namespace
}  // namespace tessera
