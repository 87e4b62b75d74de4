// SPDX-License-Identifier: Apache-2.0
#include "experiments/nvidia/moe_recipe.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "layers/experts/moe_feed_forward.h"

namespace tessera {
namespace {

constexpr std::string_view kExpertMeshAxis = "data_expert";

// GShard's initial weights for matrices of feed-forward layers: a variance of 1 / fan in.
const WeightInit kFanInInit{InitKind::kUniformUnitScaling, 1.0};

// Returns rules in which `experts` precede `embed` and `batch`, which take the remaining mesh axes.
RulesConfig expert_rules(bool use_pipeline) {
  RulesConfig rules{
      .weights =
          "experts -> data_expert, embed -> (data, data_expert), mlp -> mdl, heads -> mdl, "
          "kv_heads -> mdl, vocab -> mdl",
      .activations =
          "residual: embed -> mdl, experts -> data_expert, "
          "batch -> (replica, data, data_expert), mlp -> mdl, heads -> mdl, "
          "kv_heads -> mdl, vocab -> mdl"};
  if (use_pipeline) rules.weights = "layers -> stage, " + rules.weights;
  return rules;
}

TransformerLm::HParams& language_model_of(Template<BaseModel>& model) {
  return model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
}

void set_norm(Template<SequenceLayer>& block, const Template<UnaryLayer>& norm) {
  block.as<TransformerBlock::HParams>().norm_tpl = norm;
}

}  // namespace

ExperimentConfig NvidiaMoeRecipe::build() const {
  ExperimentConfig config = NvidiaRecipe::build();
  std::vector<std::string>& names = config.mesh.axis_names;
  names.insert(std::ranges::find(names, "mdl"), std::string(kExpertMeshAxis));
  config.rules = expert_rules(use_pipeline);
  return config;
}

void NvidiaMoeRecipe::shrink() {
  NvidiaRecipe::shrink();
  num_experts = 4;
  // The batch is split over data_expert too.
  const size_t axis = use_pipeline ? 3 : 2;
  int64_t batch = global_batch_size.get();
  for (const std::vector<int64_t>* shape : {&ici_mesh_shape, &dcn_mesh_shape})
    if (axis < shape->size()) batch *= (*shape)[axis];
  global_batch_size = batch;
}

Template<UnaryLayer> NvidiaMoeRecipe::experts() const {
  const LayerHParams layer{.params_init = kFanInInit};
  const TopKRouter::HParams router{.top_k = kExpertsOfToken,
                                   .capacity_factor = slots_per_token / kExpertsOfToken,
                                   .load_balance_weight = load_balance_weight,
                                   .load_balance_scope = BalanceScope::kExample,
                                   .layer = layer};
  return MoeFeedForward::HParams{.num_experts = num_experts,
                                 .router_tpl = router,
                                 .activation_tpl = expert_activation_tpl,
                                 .use_gated_activation = use_gated_experts,
                                 .layer = layer};
}

Template<BaseModel> NvidiaMoeRecipe::model() const {
  if (moe_period < 1 || num_layers % moe_period != 0)
    fail("moe_period={} does not divide num_layers={}", moe_period, num_layers);
  Template<BaseModel> model = NvidiaRecipe::model();
  auto& stack = language_model_of(model).stacked_transformer_tpl.as<Repeated::HParams>();
  const Template<SequenceLayer> dense = stack.block_tpl;
  stack.block_tpl.as<TransformerBlock::HParams>().ffn_tpl = experts();
  if (moe_period == 1) return model;
  std::vector<Template<SequenceLayer>> period(static_cast<size_t>(moe_period), dense);
  period.front() = stack.block_tpl;
  stack.num_layers = num_layers / moe_period;
  stack.block_tpl = LayerSequence::HParams{.layers_tpl = std::move(period)};
  return model;
}

GshardLmRecipe::GshardLmRecipe() {
  load_balance_weight = 0.01;
  norm_kind = LmNorm::kRmsNorm;
  // Replaces GLaM's learned biases of relative positions; Grok's own.
  positions = LmPositions::kRotary;
  use_per_dim_scale = false;
  attention_logit_cap = 0.0;
  softmax_logit_cap = 0.0;
  use_softmax_bias = false;
  softmax_init_std.reset();
}

Template<BaseModel> GshardLmRecipe::model() const {
  Template<BaseModel> model = NvidiaMoeRecipe::model();
  TransformerLm::HParams& lm = language_model_of(model);
  lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().loss.z_loss = z_loss_weight;
  const RmsNorm::HParams direct{.epsilon = norm_epsilon, .direct_scale = true};
  Template<SequenceLayer>& block = lm.stacked_transformer_tpl.as<Repeated::HParams>().block_tpl;
  if (block.holds<LayerSequence::HParams>()) {
    for (auto& each : block.as<LayerSequence::HParams>().layers_tpl) set_norm(each, direct);
  } else {
    set_norm(block, direct);
  }
  return model;
}

GlamRecipe::GlamRecipe() {
  num_layers = 8;
  model_dims = 8192;
  num_heads.reset();
  num_experts = 64;
  moe_period = 2;
  expert_activation_tpl = ReLU::HParams{};
}

// Uses GShard's initial weights: the scale 1/√dims_per_head of scores is in those of the query.
Template<SequenceLayer> GlamRecipe::attention() const {
  const auto width = static_cast<double>(model_dims);
  const auto head = static_cast<double>(dims_per_head);
  return DotProductAttention::HParams{
      .dims_per_head = dims_per_head,
      .query_scale = 1.0,
      .rotary_tpl = RotaryPositionEmbedding::HParams{},
      .layer = {.params_init = WeightInit{InitKind::kGaussianSqrtFanIn, 1.0}},
      .query_init = WeightInit{InitKind::kGaussian, 1.0 / std::sqrt(width * head)}};
}

Template<UnaryLayer> GlamRecipe::feed_forward() const {
  return FeedForward::HParams{.activation_tpl = activation_tpl,
                              .use_gated_activation = true,
                              .layer = {.params_init = kFanInInit}};
}

GrokRecipe::GrokRecipe() {
  num_layers = 64;
  model_dims = 6144;
  hidden_dims = 32768;
  num_heads = 48;
  num_kv_heads = 8;
  vocab_size = 131'072;
  seq_len = 8192;
  percore_batch_size = 1;
  num_experts = 8;
  use_gated_experts = true;
  use_attention_bias = true;
  // Queries, keys and values have separate weights.
  remat_policy = "save_qkv_out_proj_separate";
  num_train_steps = 10;
}

}  // namespace tessera
