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

std::string reasons_of(const LanguageModel::HParams& model) {
  return error_of([&] { hf_model_of(hf_experiment(model)); });
}

TEST_CASE("a model built from a config.json is described by the same config.json") {
  for (const std::string& name : hf_golden_names()) {
    for (const HfStack stack : {HfStack::kRepeated, HfStack::kUnrolled}) {
      INFO(name);
      const std::string file = (hf_golden(name) / "config.json").string();
      const HfConfig config = parse_hf_config(read_file(file), file);
      const HfModel model = hf_model_of(hf_experiment(name, stack));
      REQUIRE(hf_differences(config, model.config) == std::vector<std::string>{});
      REQUIRE(model.config.max_positions == config.max_positions);
      REQUIRE_FALSE(model.conventions.interleaved_rotary);
    }
  }
}

TEST_CASE("known models map to their Hugging Face family") {
  const HfConfig gpt2 = hf_model_of(hf_experiment(gpt2_124m())).config;
  REQUIRE(gpt2.family == HfFamily::kGpt2);
  REQUIRE(gpt2.max_positions == 1024);
  const HfConfig llama = hf_model_of(hf_experiment(llama2_7b())).config;
  REQUIRE(llama.family == HfFamily::kLlama);
  REQUIRE(llama.hidden_dims == 11008);
  REQUIRE(llama.max_positions == 20);  // The input's sequence length.
  REQUIRE_FALSE(llama.tied);
}

TEST_CASE("all reasons why a model cannot be mapped are reported at once") {
  const std::string pax = reasons_of(c4_spmd_1b());
  for (const char* reason : {"this model is not a GPT-2, Llama or Mixtral of transformers",
                             "embeddings are multiplied by √model_dims (scale_sqrt_depth)",
                             "softmax_tpl.use_bias: the logits have a bias",
                             "softmax_tpl.loss.soft_cap is 30: the logits are capped",
                             "attention_tpl.use_per_dim_scale: queries have a learned scale",
                             "attention_tpl.logit_cap is 50: scores are capped",
                             "position_emb_tpl is PositionalEmbedding, expected "
                             "TrainablePositionalEmbedding (GPT-2), or "
                             "rotary_tpl in attention (Llama, Mixtral)"})
    REQUIRE_THAT(pax, Contains(reason));
  REQUIRE_THAT(reasons_of(seqax_84m()), Contains("attention_tpl.query_scale is 1, expected"));

  LanguageModel::HParams model = small_llama();
  auto& lm = model.lm_tpl.as<TransformerLm::HParams>();
  auto& block = lm.stacked_transformer_tpl.as<StackedTransformer::HParams>()
                    .block_tpl.as<TransformerBlock::HParams>();
  block.norm_policy = NormPolicy::kPost;
  block.ffn_tpl.as<FeedForward::HParams>().use_gated_activation = false;
  block.ffn_tpl.as<FeedForward::HParams>().activation_tpl = Exp::HParams{};
  block.norm_tpl.as<RmsNorm::HParams>().epsilon = 1e-3;
  auto& attention = block.attention_tpl.as<DotProductAttention::HParams>();
  attention.causal = false;
  attention.query_norm_tpl = RmsNorm::HParams{};
  auto& rotary = attention.rotary_tpl.as<RotaryPositionEmbedding::HParams>();
  rotary.min_timescale = 2.0;
  rotary.stretch = RotaryStretchHParams{.factor = 2.0, .length = 10.5};
  const std::string llama = reasons_of(model);
  for (const char* reason :
       {"norm_policy is post, expected pre", "ffn_tpl.use_gated_activation is false; Llama's",
        "ffn_tpl.activation_tpl is Exp, which transformers does not have",
        "norm_tpl (RmsNorm, epsilon 0.001) and final_ln_tpl (RmsNorm, epsilon 1e-06) differ",
        "attention_tpl.causal is false", "attention_tpl normalises queries or keys",
        "has both min_timescale=2 and a stretch",
        "rotary_tpl.stretch.length is not a whole number"})
    REQUIRE_THAT(llama, Contains(reason));

  model = small_gpt2();
  auto& gpt2 = model.lm_tpl.as<TransformerLm::HParams>();
  gpt2.stacked_transformer_tpl.as<StackedTransformer::HParams>()
      .block_tpl.as<TransformerBlock::HParams>()
      .attention_tpl.as<DotProductAttention::HParams>()
      .num_kv_heads = 2;
  gpt2.final_ln_tpl = Template<UnaryLayer>();
  const std::string grouped = reasons_of(model);
  REQUIRE_THAT(grouped, Contains("num_kv_heads is 2 of 4 heads; GPT-2 has no grouped queries"));
  REQUIRE_THAT(grouped, Contains("final_ln_tpl is unset, expected LayerNorm (GPT-2) or RmsNorm"));
}

TEST_CASE("all reasons why a model with experts is not a Mixtral are reported at once") {
  ExperimentConfig config = hf_experiment("mixtral");
  auto& experts = block_of(config).ffn_tpl.as<MoeFeedForward::HParams>();
  auto& router = experts.router_tpl.as<TopKRouter::HParams>();
  router.scores = RouterScores::kSigmoid;
  router.normalize_weights = false;
  router.weight_scale = 2.5;
  router.capacity_factor = 1.25;
  router.bias_rate = 0.001;
  experts.num_shared_experts = 1;
  experts.use_gated_activation = false;
  experts.activation_tpl = Exp::HParams{};
  block_of(config).attention_tpl.as<DotProductAttention::HParams>().use_output_bias = true;
  const std::string reasons = error_of([&] { hf_model_of(config); });
  for (const char* reason :
       {"router_tpl.scores is sigmoid, expected softmax",
        "router_tpl.normalize_weights is false; Mixtral divides the scores",
        "router_tpl.weight_scale is 2.5, expected 1",
        "router_tpl.capacity_factor is 1.25, expected unset; Mixtral drops no tokens",
        "router_tpl.bias_rate is 0.001: Mixtral's choices have no bias",
        "ffn_tpl.num_shared_experts is 1; Mixtral has no shared experts",
        "ffn_tpl.use_gated_activation is false; Mixtral's experts are gated",
        "ffn_tpl.activation_tpl is Exp, which transformers does not have",
        "attention_tpl.use_bias or use_output_bias is true; Mixtral has no biases"})
    REQUIRE_THAT(reasons, Contains(reason));
  experts.router_tpl = ExpertChoiceRouter::HParams{};
  REQUIRE_THAT(error_of([&] { hf_model_of(config); }),
               Contains("router_tpl is ExpertChoiceRouter, expected TopKRouter"));

  ExperimentConfig gpt2 = hf_experiment("gpt2");
  block_of(gpt2).ffn_tpl = MoeFeedForward::HParams{.num_experts = 4};
  REQUIRE_THAT(error_of([&] { hf_model_of(gpt2); }),
               Contains("ffn_tpl is MoeFeedForward without rotary positions; Mixtral has both"));

  // Dense layers between those with experts.
  ExperimentConfig mixed = hf_experiment("mixtral", HfStack::kRepeated);
  const TransformerBlock::HParams sparse = block_of(mixed);
  TransformerBlock::HParams dense = sparse;
  dense.ffn_tpl = FeedForward::HParams{.use_gated_activation = true};
  const LayerSequence::HParams both{.layers_tpl = {dense, sparse}};
  lm_of(mixed).stacked_transformer_tpl = Repeated::HParams{.block_tpl = both};
  REQUIRE_THAT(error_of([&] { hf_model_of(mixed); }),
               Contains("block_tpl is LayerSequence, expected TransformerBlock in every layer"));
  lm_of(mixed).stacked_transformer_tpl = both;
  REQUIRE_THAT(error_of([&] { hf_model_of(mixed); }),
               Contains("stacked_transformer_tpl is LayerSequence, expected StackedTransformer or "
                        "Repeated, with equal layers"));
}

TEST_CASE("the coefficient of Mixtral's loss becomes a weight of equal effect, and is kept") {
  for (const std::string name : {"mixtral", "mixtral_tied"}) {
    const std::string file = (hf_golden(name) / "config.json").string();
    const HfConfig config = parse_hf_config(read_file(file), file);
    ExperimentConfig experiment = hf_experiment(name);
    const auto& router = block_of(experiment)
                             .ffn_tpl.as<MoeFeedForward::HParams>()
                             .router_tpl.as<TopKRouter::HParams>();
    // transformers adds coef·Σ f·P·experts with Σ f = experts per token, once for all layers.
    REQUIRE(router.load_balance_weight ==
            Approx(config.router_loss_coef * static_cast<double>(config.experts_per_token) / 2));
    const HfConfig back = hf_model_of(experiment).config;
    REQUIRE(back.router_loss_coef == config.router_loss_coef);
    REQUIRE(back.router_jitter == config.router_jitter);
  }
}

TEST_CASE("tensors map to every weight, and cover each exactly") {
  for (const std::string& name : hf_golden_names()) {
    const ExperimentConfig config = hf_experiment(name, HfStack::kRepeated);
    const std::unique_ptr<BaseTask> task = config.task.instantiate();
    const ParameterTable& table = task->model().parameters();
    int64_t held = 0;
    for (const HfTensor& tensor : hf_tensors(hf_model_of(config), table)) {
      int64_t elements = 1;
      for (const int64_t size : tensor.shape) elements *= size;
      REQUIRE(tensor.elements() == elements);
      held += elements;
    }
    REQUIRE(held == table.elements());
  }
}

TEST_CASE("a GPT-2 whose layers divide their scores by their number maps both ways") {
  const std::string file = (hf_golden("gpt2") / "config.json").string();
  HfConfig config = parse_hf_config(read_file(file), file);
  config.inverse_layer_scale = true;
  const std::string text = hf_config_text(config, "float32");
  REQUIRE_THAT(text, Contains("\"scale_attn_by_inverse_layer_idx\": true"));
  config = parse_hf_config(text, "written");
  LanguageModel::HParams model = model_of_hf(config, HfStack::kRepeated);
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
  const HfModel back = hf_model_of(experiment);
  REQUIRE(hf_differences(config, back.config) == std::vector<std::string>{});
  const std::unique_ptr<BaseTask> task = experiment.task.instantiate();
  const ParameterTable& table = task->model().parameters();
  int64_t held = 0;
  for (const HfTensor& tensor : hf_tensors(back, table)) held += tensor.elements();
  REQUIRE(held == table.elements());

  config.inverse_layer_scale = false;
  REQUIRE(hf_differences(config, back.config) ==
          std::vector<std::string>{"scale_attn_by_inverse_layer_idx: false in config.json, true in "
                                   "the experiment"});
  scale_of(1) = 0.3;
  REQUIRE_THAT(reasons_of(model), Contains("in which only query_scale differs"));
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
