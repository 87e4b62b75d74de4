// SPDX-License-Identifier: Apache-2.0
// Every feature of the families matters: without it the logits of a golden model are far from those
// of transformers.
#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <memory>

#include "core/io/safetensors.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "layers/attention/gated_delta_net.h"
#include "layers/attention/latent_attention.h"
#include "layers/dropout.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/norms/norms.h"
#include "tasks/families/parts.h"
#include "tasks/run/session/model_state.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Block = TransformerBlock::HParams;

RotaryPositionEmbedding::HParams& rotary_in(Block& block) {
  return rotary_of(block)->as<RotaryPositionEmbedding::HParams>();
}
// Null in a dense layer.
TopKRouter::HParams* router_in(Block& block) {
  if (!block.ffn_tpl.holds<MoeFeedForward::HParams>()) return nullptr;
  return &block.ffn_tpl.as<MoeFeedForward::HParams>().router_tpl.as<TopKRouter::HParams>();
}

Template<RotaryPositionEmbedding>& latent_rotary_in(Block& block) {
  return block.attention_tpl.as<LatentAttention::HParams>().rotary_tpl;
}
void remove_window(Block& block) { attention_in(block).window.reset(); }
void remove_query_norm(Block& block) { attention_in(block).query_norm_tpl = {}; }
void remove_key_norm(Block& block) { attention_in(block).key_norm_tpl = {}; }
void remove_post_norms(Block& block) { block.norm_policy = NormPolicy::kPre; }
void rotate_all(Block& block) {
  attention_in(block).rotary_tpl = RotaryPositionEmbedding::HParams{};
}
void remove_latent_norms(Block& block) {
  block.attention_tpl.as<LatentAttention::HParams>().normalize_latents = false;
}
void remove_shared_experts(Block& block) {
  if (router_in(block) != nullptr)
    block.ffn_tpl.as<MoeFeedForward::HParams>().num_shared_experts = 0;
}
void remove_groups(Block& block) {
  if (router_in(block) != nullptr) router_in(block)->num_groups = router_in(block)->top_groups = 1;
}
void remove_sum_of_scores(Block& block) {
  if (router_in(block) != nullptr) router_in(block)->normalize_weights = false;
}
void remove_weight_scale(Block& block) {
  if (router_in(block) != nullptr) router_in(block)->weight_scale = 1.0;
}

using Change = std::function<void(TransformerLm::HParams&)>;

// A run with the weights of a golden's files, and how far logits are from those of transformers.
class ImportedGolden {
 public:
  ImportedGolden(const std::string& golden, const fs::path& files)
      : config_(hf_experiment(golden)), scores_(read_scores(hf_golden(golden))) {
    import_hf(config_, files, run());
  }
  double error() const { return error_in(config_, run()); }
  // The error of a changed model, which may lack weights of the run.
  double error_with(const Change& change) const {
    ExperimentConfig config = config_;
    change(lm_of(config));
    const std::unique_ptr<BaseTask> before = config_.task.instantiate(),
                                    after = config.task.instantiate();
    const ParameterTable& table = after->model().parameters();
    if (table.parameters().size() == before->model().parameters().parameters().size())
      return error_in(config, run());
    const TemporaryDirectory directory;
    write_weights(table, directory.path());
    return error_in(config, directory.path());
  }

 private:
  fs::path run() const { return directory_ / "run"; }
  double error_in(const ExperimentConfig& config, const fs::path& run) const {
    return largest_difference(logits_of(config, run, scores_.ids, {scores_.encoder_ids}),
                              scores_.logits);
  }
  void write_weights(const ParameterTable& table, const fs::path& run) const {
    const CheckpointStore from(this->run() / "checkpoints");
    const Checkpoint checkpoint = from.open(from.newest().value());
    std::list<std::vector<std::byte>> values;
    std::vector<CheckpointArray> arrays;
    for (const Parameter& each : table.parameters()) {
      const std::string path = parameter_array_path(each.path);
      const std::vector<int64_t> shape = sizes_of(each.type.axes);
      checkpoint.expect(path, each.type.dtype, shape);
      auto& bytes = values.emplace_back(
          static_cast<size_t>(each.type.elements() * dtype_bytes(each.type.dtype)));
      checkpoint.read_block(path, {std::vector<int64_t>(shape.size(), 0), shape}, bytes);
      arrays.push_back({.path = path, .dtype = each.type.dtype, .shape = shape, .bytes = bytes});
    }
    const fs::path to = run / "checkpoints/step_0000000000";
    fs::create_directories(to);
    write_checkpoint_shard(to, checkpoint.info(), arrays);
    write_checkpoint_index(to, checkpoint.info());
  }

  TemporaryDirectory directory_;
  ExperimentConfig config_;
  HfScores scores_;
};

// Each golden is imported once.
class Goldens {
 public:
  struct Model {
    explicit Model(const char* golden) : run(golden, hf_golden(golden)), error(run.error()) {}
    ImportedGolden run;
    double error;
  };
  const Model& operator[](const char* golden) {
    auto& model = models_[golden];
    if (!model) model = std::make_unique<Model>(golden);
    return *model;
  }
  void require_far_without(const char* golden, const char* feature, const Change& remove) {
    INFO(golden << ": " << feature);
    const Model& model = (*this)[golden];
    const double without = model.run.error_with(remove);
    REQUIRE(without > 100.0 * model.error);
  }

 private:
  std::map<std::string, std::unique_ptr<Model>> models_;
};

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
    {"olmo3_yarn", "YaRN's factor in some layers",
     [](Block& b) { rotary_in(b).output_scale = 1.0; }},
    {"llama_dynamic", "a growing base", [](Block& b) { rotary_in(b).dynamic.reset(); }},
    {"phi3_long", "divisors of long sequences",
     [](Block& b) { rotary_in(b).long_sequences->length = 100.0; }},
    {"mistral_window", "a window", remove_window},
    {"qwen2_window", "a window of some layers", remove_window},
    {"phi3_window", "a window", remove_window},
    {"smollm3_window", "a window of some layers", remove_window},
    {"olmo3", "a window of some layers", remove_window},
    {"gpt_oss", "a window of some layers", remove_window},
    {"gemma2", "a window of some layers", remove_window},
    {"gemma3", "a window of some layers", remove_window},
    {"qwen3", "norms of queries in each head", remove_query_norm},
    {"qwen3", "norms of keys in each head", remove_key_norm},
    {"gemma3", "norms of queries", remove_query_norm},
    {"gemma3", "norms of keys", remove_key_norm},
    {"olmo2", "norms of queries over all heads", remove_query_norm},
    {"olmo2", "norms of keys over all heads", remove_key_norm},
    {"olmo2", "norms after sublayers", [](Block& b) { b.norm_tpl = Dropout::HParams{}; }},
    {"gemma2", "norms after sublayers", remove_post_norms},
    {"gemma3", "norms after sublayers", remove_post_norms},
    {"gpt2", "the approximation of GELU",
     [](Block& b) {
       b.ffn_tpl.as<FeedForward::HParams>().activation_tpl = GELU::HParams{.approximate = false};
     }},
    {"gpt2_untied", "an exact GELU",
     [](Block& b) {
       b.ffn_tpl.as<FeedForward::HParams>().activation_tpl = GELU::HParams{.approximate = true};
     }},
    {"gpt2_untied", "the epsilon of norms",
     [](Block& b) { b.norm_tpl.as<LayerNorm::HParams>().epsilon = 1e-5; }},
    {"granite", "the factor of sublayers", [](Block& b) { b.residual_multiplier = 1.0; }},
    {"granite", "the factor of scores", [](Block& b) { attention_in(b).query_scale.reset(); }},
    {"gemma2", "the scale of queries", [](Block& b) { attention_in(b).query_scale.reset(); }},
    {"gemma2", "the cap of scores", [](Block& b) { attention_in(b).logit_cap = 0.0; }},
    {"gemma3", "positions of layers with a window",
     [](Block& b) {
       if (attention_in(b).window.has()) rotary_in(b).max_timescale = 1e6;
     }},
    {"smollm3", "layers without positions", rotate_all},
    {"smollm3_listed", "listed layers without positions", rotate_all},
    {"smollm3_window", "listed layers without positions", rotate_all},
    {"phi4_mini", "a rotated part", [](Block& b) { rotary_in(b).rotary_share = 1.0; }},
    {"pythia", "a rotated part", [](Block& b) { rotary_in(b).rotary_share = 1.0; }},
    {"gpt_neox", "sublayers one after another", [](Block& b) { b.parallel = true; }},
    {"pythia", "parallel sublayers", [](Block& b) { b.parallel = false; }},
    {"mixtral", "the sum of chosen scores", remove_sum_of_scores},
    {"qwen3_moe", "the sum of chosen scores", remove_sum_of_scores},
    {"qwen3_moe_scores", "scores that are not divided",
     [](Block& b) {
       if (router_in(b) != nullptr) router_in(b)->normalize_weights = true;
     }},
    {"deepseek_v2", "groups of experts", remove_groups},
    {"deepseek_v2", "the scale of experts", remove_weight_scale},
    {"deepseek_v2", "shared experts", remove_shared_experts},
    {"deepseek_v2", "norms of both latents", remove_latent_norms},
    {"deepseek_v2_lite", "the norm of the latent of keys", remove_latent_norms},
    {"deepseek_v2_lite", "shared experts", remove_shared_experts},
    {"deepseek_v3", "the scale of experts", remove_weight_scale},
    {"deepseek_v3", "shared experts", remove_shared_experts},
    {"deepseek_v3", "norms of both latents", remove_latent_norms},
    {"deepseek_v3", "rotated neighbours",
     [](Block& b) {
       latent_rotary_in(b).as<RotaryPositionEmbedding::HParams>().interleaved = false;
     }},
    {"deepseek_v3", "scores by sigmoid",
     [](Block& b) {
       if (router_in(b) != nullptr) router_in(b)->scores = RouterScores::kSoftmax;
     }},
    {"deepseek_v3", "the bias of the choice",
     [](Block& b) {
       if (router_in(b) != nullptr) router_in(b)->bias_rate = 0.0;
     }},
    {"deepseek_v3", "groups of experts", remove_groups},
    {"deepseek_v3", "two experts for the score of a group",
     [](Block& b) {
       if (router_in(b) != nullptr) router_in(b)->group_best = 1;
     }},
    {"deepseek_v3", "the sum of chosen scores", remove_sum_of_scores},
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
  Goldens goldens;
  for (const Removal& removal : kRemovals)
    goldens.require_far_without(removal.golden, removal.feature, [&](TransformerLm::HParams& lm) {
      for_each_block(lm.stacked_transformer_tpl, removal.remove);
    });
}

struct ModelRemoval {
  const char* golden;
  const char* feature;
  void (*remove)(TransformerLm::HParams& lm);
};

FullSoftmax::HParams& softmax_in(TransformerLm::HParams& lm) {
  return lm.softmax_tpl.as<FullSoftmax::HParams>();
}
SharedEmbeddingSoftmax::HParams& shared_softmax_in(TransformerLm::HParams& lm) {
  return lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>();
}

const std::vector<ModelRemoval> kModelRemovals = {
    {"gpt2", "positions", [](TransformerLm::HParams& lm) { lm.position_emb_tpl = {}; }},
    {"granite", "the factor of embeddings",
     [](TransformerLm::HParams& lm) {
       lm.separate_embedding_tpl.as<Embedding::HParams>().multiplier = 1.0;
     }},
    {"granite", "the factor of logits",
     [](TransformerLm::HParams& lm) { softmax_in(lm).loss.multiplier = 1.0; }},
    {"gemma", "the scale of embeddings",
     [](TransformerLm::HParams& lm) { shared_softmax_in(lm).scale_sqrt_depth = false; }},
    {"gemma2", "the scale of embeddings",
     [](TransformerLm::HParams& lm) { shared_softmax_in(lm).scale_sqrt_depth = false; }},
    {"gemma2", "the cap of logits",
     [](TransformerLm::HParams& lm) { shared_softmax_in(lm).loss.soft_cap = 0.0; }},
    {"bert", "types of tokens", [](TransformerLm::HParams& lm) { lm.type_emb_tpl = {}; }},
    {"bert_odd", "types of tokens", [](TransformerLm::HParams& lm) { lm.type_emb_tpl = {}; }},
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
     [](TransformerLm::HParams& lm) { shared_softmax_in(lm).loss.multiplier = 1.0; }},
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

TEST_CASE("without any feature around the blocks the logits are far from those of transformers") {
  Goldens goldens;
  for (const ModelRemoval& removal : kModelRemovals)
    goldens.require_far_without(removal.golden, removal.feature, removal.remove);
}

// All values of each tensor whose name has this end become `value`.
struct WeightRemoval {
  const char* golden;
  const char* ending;
  float value = 0.0f;
};

const std::vector<WeightRemoval> kWeightRemovals = {
    {"qwen2", "q_proj.bias"},
    {"qwen2", "k_proj.bias"},
    {"qwen2", "v_proj.bias"},
    {"starcoder2", "q_proj.bias"},
    {"starcoder2", "k_proj.bias"},
    {"starcoder2", "v_proj.bias"},
    {"starcoder2", "o_proj.bias"},
    {"starcoder2", "c_fc.bias"},
    {"starcoder2", "c_proj.bias"},
    {"starcoder2", "norm.bias"},
    {"gpt2", "c_attn.bias"},
    {"gpt2", "attn.c_proj.bias"},
    {"gpt2", "c_fc.bias"},
    {"gpt2", "mlp.c_proj.bias"},
    {"gpt2", "ln_1.bias"},
    {"gpt2", "ln_2.bias"},
    {"gpt2", "ln_f.bias"},
    {"deepseek_v3", "q_a_layernorm.weight", 1.0f},
    {"deepseek_v3", "kv_a_layernorm.weight", 1.0f},
};

void write_removed(const WeightRemoval& removal, const fs::path& directory) {
  const SafetensorsModel model(hf_golden(removal.golden));
  fs::create_directories(directory);
  fs::copy_file(hf_golden(removal.golden) / "config.json", directory / "config.json");
  SafetensorsPlan plan;
  for (const std::string& name : model.names()) plan.tensors.push_back(*model.find(name));
  SafetensorsWriter writer(directory, plan);
  size_t removed = 0;
  for (const std::string& name : model.names()) {
    std::vector<float> values = tensor_values(model, name);
    if (name.ends_with(removal.ending)) {
      std::ranges::fill(values, removal.value);
      ++removed;
    }
    writer.write(values);
  }
  writer.finish();
  REQUIRE(removed > 0);
}

TEST_CASE("without any bias or norm of latents the logits are far from those of transformers") {
  Goldens goldens;
  for (const WeightRemoval& removal : kWeightRemovals) {
    INFO(removal.golden << ": " << removal.ending);
    const TemporaryDirectory directory;
    write_removed(removal, directory / "hf");
    const double with = goldens[removal.golden].error,
                 without = ImportedGolden(removal.golden, directory / "hf").error();
    REQUIRE(without > 100.0 * with);
  }
}

}  // namespace
}  // namespace tessera
