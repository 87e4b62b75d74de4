// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_model.h"

#include "core/base/error.h"
#include "core/io/file.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/models/transformer.h"
#include "layers/norms/norms.h"
#include "tasks/interop/hf_weights.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/reference_models.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

using Catch::Contains;

std::string reasons_of(const LanguageModel::HParams& model, std::string_view family = "") {
  return error_of([&] { hf_model_of(hf_experiment(model), family); });
}

TEST_CASE("a model built from a config.json is described by the same config.json") {
  for (const std::string& name : hf_golden_names()) {
    for (const StackStyle stack : {StackStyle::kRepeated, StackStyle::kUnrolled}) {
      INFO(name);
      const HfConfig config = hf_golden_config(name);
      const ExperimentConfig experiment = hf_experiment(name, stack);
      const HfModel model = hf_model_of(experiment, config.family->model_type);
      REQUIRE(model.family == config.family);
      const LayeredLm read = layers_of(stacked(config.model, StackStyle::kUnrolled));
      REQUIRE(differences(read, model.ours, Missing::kIsDifferent).empty());
      REQUIRE(hf_model_of(experiment, config).family == config.family);
    }
  }
}

TEST_CASE("known models map to their Hugging Face family") {
  const HfModel gpt2 = hf_model_of(hf_experiment(gpt2_124m()));
  REQUIRE(gpt2.family->model_type == "gpt2");
  REQUIRE_THAT(hf_config_text(gpt2, "float32", {.end = 3}),
               Contains("\"n_positions\": 1024") && Contains("\"eos_token_id\": 3") &&
                   Contains("\"bos_token_id\": null") && Contains("GPT2LMHeadModel"));
  const HfModel llama = hf_model_of(hf_experiment(llama2_7b()));
  REQUIRE(llama.family->model_type == "llama");
  // The input's sequence length.
  REQUIRE_THAT(hf_config_text(llama, "bfloat16"), Contains("\"intermediate_size\": 11008") &&
                                                      Contains("\"max_position_embeddings\": 20") &&
                                                      Contains("\"tie_word_embeddings\": false") &&
                                                      Contains("\"dtype\": \"bfloat16\""));
}

TEST_CASE("all reasons why a model cannot be mapped are reported at once") {
  const std::string pax = reasons_of(c4_spmd_1b(), "gpt2");
  REQUIRE_THAT(pax, Contains("this model is not a gpt2 of transformers: position_emb_tpl is "
                             "PositionalEmbedding, expected TrainablePositionalEmbedding"));
  REQUIRE_THAT(reasons_of(c4_spmd_1b()),
               Contains("this model is of no family of transformers that is known (") &&
                   Contains("), the nearest is "));
  REQUIRE_THAT(reasons_of(seqax_84m(), "llama"), Contains("attention_tpl.query_scale is 1"));
  REQUIRE_THAT(reasons_of(small_llama(), "lama"), Contains("did you mean 'llama'?"));

  LanguageModel::HParams model = small_llama();
  auto& lm = model.lm_tpl.as<TransformerLm::HParams>();
  auto& block = lm.stacked_transformer_tpl.as<StackedTransformer::HParams>()
                    .block_tpl.as<TransformerBlock::HParams>();
  block.norm_policy = NormPolicy::kPost;
  block.ffn_tpl.as<FeedForward::HParams>().use_gated_activation = false;
  block.norm_tpl.as<RmsNorm::HParams>().epsilon = 1e-3;
  auto& attention = block.attention_tpl.as<DotProductAttention::HParams>();
  attention.causal = false;
  attention.logit_cap = 50.0;
  attention.query_norm_tpl = RmsNorm::HParams{.axis = "head_dim"};
  auto& rotary = attention.rotary_tpl.as<RotaryPositionEmbedding::HParams>();
  rotary.min_timescale = 2.0;
  rotary.stretch = RotaryStretchHParams{.factor = 2.0, .length = 10.5};
  auto& softmax = lm.softmax_tpl.as<FullSoftmax::HParams>();
  softmax.use_bias = true;
  softmax.loss.soft_cap = 30.0;
  const std::string llama = reasons_of(model, "llama");
  for (const char* reason :
       {"norm_policy is post, expected pre", "ffn_tpl.use_gated_activation is false, expected true",
        "softmax_tpl.use_bias is true, expected false",
        "softmax_tpl.loss.soft_cap is 30.0, expected 0.0",
        "norm_tpl.epsilon is 0.001, expected 1e-06", "attention_tpl.causal is false, expected true",
        "attention_tpl.logit_cap is 50.0, expected 0.0",
        "attention_tpl.query_norm_tpl is RmsNorm, expected unset",
        "attention_tpl.rotary_tpl.stretch is RotaryStretch, expected unset"})
    REQUIRE_THAT(llama, Contains(reason));
  block.ffn_tpl.as<FeedForward::HParams>().activation_tpl = Exp::HParams{};
  REQUIRE_THAT(reasons_of(model, "llama"),
               Contains("activation_tpl is Exp, which transformers does not have"));

  model = small_gpt2();
  auto& gpt2 = model.lm_tpl.as<TransformerLm::HParams>();
  gpt2.stacked_transformer_tpl.as<StackedTransformer::HParams>()
      .block_tpl.as<TransformerBlock::HParams>()
      .attention_tpl.as<DotProductAttention::HParams>()
      .num_kv_heads = 2;
  REQUIRE_THAT(reasons_of(model, "gpt2"), Contains("attention_tpl.num_kv_heads is 2, expected 4"));
  gpt2.final_ln_tpl = Template<UnaryLayer>();
  REQUIRE_THAT(reasons_of(model, "gpt2"), Contains("final_ln_tpl is unset, expected LayerNorm"));
}

TEST_CASE("all reasons why a model with experts is not a Mixtral are reported at once") {
  ExperimentConfig config = hf_experiment("mixtral");
  const auto reasons = [&] { return error_of([&] { hf_model_of(config, "mixtral"); }); };
  auto& experts = block_of(config).ffn_tpl.as<MoeFeedForward::HParams>();
  auto& router = experts.router_tpl.as<TopKRouter::HParams>();
  router.scores = RouterScores::kSigmoid;
  router.normalize_weights = false;
  router.weight_scale = 2.5;
  router.capacity_factor = 1.25;
  router.bias_rate = 0.001;
  experts.num_shared_experts = 1;
  experts.use_gated_activation = false;
  block_of(config).attention_tpl.as<DotProductAttention::HParams>().use_output_bias = true;
  for (const char* reason : {"router_tpl.scores is sigmoid, expected softmax",
                             "router_tpl.normalize_weights is false, expected true",
                             "router_tpl.weight_scale is 2.5, expected 1.0",
                             "router_tpl.capacity_factor is 1.25, expected unset",
                             "router_tpl.bias_rate is 0.001, expected 0.0",
                             "ffn_tpl.num_shared_experts is 1, expected 0",
                             "ffn_tpl.use_gated_activation is false, expected true",
                             "attention_tpl.use_output_bias is true, expected false"})
    REQUIRE_THAT(reasons(), Contains(reason));
  experts.router_tpl = ExpertChoiceRouter::HParams{};
  REQUIRE_THAT(reasons(), Contains("router_tpl is ExpertChoiceRouter, expected TopKRouter"));

  // A dense layer before the other.
  config = hf_experiment("mixtral", StackStyle::kRepeated);
  const TransformerBlock::HParams sparse = block_of(config);
  TransformerBlock::HParams dense = sparse;
  dense.ffn_tpl = FeedForward::HParams{.use_gated_activation = true};
  lm_of(config).stacked_transformer_tpl = LayerSequence::HParams{.layers_tpl = {dense, sparse}};
  REQUIRE_THAT(reasons(), Contains("ffn_tpl is FeedForward, expected MoeFeedForward"));
}

TEST_CASE("the coefficient of Mixtral's loss is kept") {
  const std::string text = hf_config_text(hf_model_of(hf_experiment("mixtral_tied")), "float32");
  REQUIRE_THAT(
      text, Contains("\"router_aux_loss_coef\": 0.02") && Contains("\"router_jitter_noise\": 0.1"));
}

TEST_CASE("tensors map to every weight, and cover each exactly") {
  for (const std::string& name : hf_golden_names()) {
    const ExperimentConfig config = hf_experiment(name, StackStyle::kRepeated);
    const std::unique_ptr<BaseTask> task = config.task.instantiate();
    const ParameterTable& table = task->model().parameters();
    int64_t held = 0;
    for (const HfTensor& tensor : hf_tensors(hf_model_of(config, hf_golden_config(name)), table)) {
      int64_t elements = 1;
      for (const int64_t size : tensor.shape) elements *= size;
      REQUIRE(tensor.elements() == elements);
      held += elements;
    }
    REQUIRE(held == table.elements());
  }
}

TEST_CASE("a GPT-2 whose layers divide their scores by their number maps both ways") {
  std::string text = read_file(hf_golden("gpt2") / "config.json");
  const std::string member = "\"scale_attn_by_inverse_layer_idx\": ";
  text.replace(text.find(member + "false"), member.size() + 5, member + "true");
  const HfConfig config = read_hf_config(text, "config.json");
  LanguageModel::HParams model = model_of_hf(config, StackStyle::kRepeated);
  auto& layers = model.lm_tpl.as<TransformerLm::HParams>()
                     .stacked_transformer_tpl.as<LayerSequence::HParams>()
                     .layers_tpl;
  const auto scale_of = [&](size_t layer) -> Field<double>& {
    return layers[layer]
        .as<StackedTransformer::HParams>()
        .block_tpl.as<TransformerBlock::HParams>()
        .attention_tpl.as<DotProductAttention::HParams>()
        .query_scale;
  };
  REQUIRE(layers.size() == 2);
  REQUIRE(scale_of(0).get() == Approx(0.5));  // 1/√4
  REQUIRE(scale_of(1).get() == Approx(0.25));
  const ExperimentConfig experiment = hf_experiment(model);
  REQUIRE_THAT(hf_config_text(hf_model_of(experiment), "float32"), Contains(member + "true"));
  const std::unique_ptr<BaseTask> task = experiment.task.instantiate();
  const ParameterTable& table = task->model().parameters();
  int64_t held = 0;
  for (const HfTensor& tensor : hf_tensors(hf_model_of(experiment, config), table))
    held += tensor.elements();
  REQUIRE(held == table.elements());

  REQUIRE_THAT(error_of([&] { hf_model_of(experiment, hf_golden_config("gpt2")); }),
               Contains("attention_tpl.query_scale of layer 1: 0.5 in config.json, 0.25 in the "
                        "experiment"));
  scale_of(1) = 0.3;
  REQUIRE_THAT(reasons_of(model, "gpt2"), Contains("attention_tpl.query_scale of layer 1 is 0.3"));
}

TEST_CASE("a weight without a tensor is named") {
  const ExperimentConfig gpt2 = hf_experiment("gpt2");
  const HfModel model = hf_model_of(gpt2);
  ExperimentConfig more = gpt2;
  lm_of(more).softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().use_bias = true;
  const std::unique_ptr<BaseTask> task = more.task.instantiate();
  REQUIRE_THAT(error_of([&] { hf_tensors(model, task->model().parameters()); }),
               Contains("the format of gpt2 has no tensor for lm.softmax.b f32[\"vocab=48\"]"));
}

}  // namespace
}  // namespace tessera
