// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=nvidia.MoELarge --smoke
// Mixtures of experts: Pax's MoELarge, GLaM64B64EProxy, Grok and its proxies
// (paxml/tasks/lm/params/nvidia.py; their models are in praxis/layers/glam.py and
// praxis/layers/grok.py), PileGLaM… of its recipes for GPUs, and the model that GLaM64B64EProxy
// approximates.
//
// The mesh has an axis `data_expert` before `mdl`, as Pax's has with expert parallelism. It splits
// the batch and the experts, to whose devices tokens are sent; and it splits other weights at rest,
// as `data` does, over which the weights of experts are gathered. Meshes are replica × data ×
// data_expert × mdl, after the stages if there are any. Pax's axis `data` is data × data_expert
// here where it is larger than the number of experts.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "experiments/nvidia/nvidia_recipe.h"
#include "layers/experts/moe_feed_forward.h"
#include "plugins/registry.h"
#include "tasks/task/learner/optimizers.h"
#include "tasks/task/learner/schedules.h"

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

// Pax's MoELarge: a GPT whose feed-forward layers are mixtures, with the gating of GShard (Lepikhin
// et al., 2020): two experts for each token, and slots for a fixed number of tokens of an example.
struct NvidiaMoeRecipe : NvidiaRecipe {
  using Base = NvidiaRecipe;
  int64_t num_experts = 16;
  int64_t moe_period = 1;  // The first of so many layers has a mixture.
  // Slots of all experts together for each token. Pax: unadjusted_expert_capacity_factor.
  double slots_per_token = 2.0;
  double load_balance_weight = 1.0;  // Pax: moe_load_balance_loss_weight.
  bool use_gated_experts = false;
  Template<Activation> expert_activation_tpl = GELU::HParams{.approximate = true};
  FIELDS(About(num_experts, kSize), About(moe_period, kSize), About(slots_per_token, kPositive),
         About(load_balance_weight, kNotNegative), use_gated_experts, expert_activation_tpl)

  ExperimentConfig build() const override {
    ExperimentConfig config = NvidiaRecipe::build();
    std::vector<std::string>& names = config.mesh.axis_names;
    names.insert(std::ranges::find(names, "mdl"), std::string(kExpertMeshAxis));
    config.rules = expert_rules(use_pipeline);
    return config;
  }

  void shrink() override {
    NvidiaRecipe::shrink();
    num_experts = 4;
    // The batch is split over data_expert too.
    const size_t axis = use_pipeline ? 3 : 2;
    int64_t batch = global_batch_size.get();
    for (const std::vector<int64_t>* shape : {&ici_mesh_shape, &dcn_mesh_shape})
      if (axis < shape->size()) batch *= (*shape)[axis];
    global_batch_size = batch;
  }

 protected:
  static constexpr int64_t kExpertsOfToken = 2;

  // Returns the dense model of the base, with mixtures.
  Template<BaseModel> model() const override {
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

  Template<UnaryLayer> experts() const {
    const LayerHParams layer{.params_init = kFanInInit};
    const TopKRouter::HParams router{.top_k = kExpertsOfToken,
                                     .capacity_factor = slots_per_token / kExpertsOfToken,
                                     .load_balance_weight = load_balance_weight,
                                     .load_balance_scope = BalanceScope::kExample,
                                     .load_balance_first_choices = true,
                                     .layer = layer};
    return MoeFeedForward::HParams{.num_experts = num_experts,
                                   .router_tpl = router,
                                   .activation_tpl = expert_activation_tpl,
                                   .use_gated_activation = use_gated_experts,
                                   .layer = layer};
  }
};

// The common knobs of GLaM and Grok: RMSNorm, no caps, no learned positions, no biases, z-loss.
struct GshardLmRecipe : NvidiaMoeRecipe {
  using Base = NvidiaMoeRecipe;
  double z_loss_weight = 1e-4;
  FIELDS(About(z_loss_weight, kNotNegative))

  GshardLmRecipe() {
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

 protected:
  Template<BaseModel> model() const override {
    Template<BaseModel> model = NvidiaMoeRecipe::model();
    language_model_of(model).softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().loss.z_loss =
        z_loss_weight;
    return model;
  }
};

// GLaM (Du et al., 2022, arXiv 2112.06905): every second layer is a mixture, of ungated experts;
// the feed-forward layers of the others are gated. Heads have dims_per_head dimensions, also where
// there are more heads than model_dims has room for.
struct GlamRecipe : GshardLmRecipe {
  GlamRecipe() {
    num_layers = 8;
    model_dims = 8192;
    num_heads.reset();
    num_experts = 64;
    moe_period = 2;
    expert_activation_tpl = ReLU::HParams{};
  }

 protected:
  // Uses GShard's initial weights: the scale 1/√dims_per_head of scores is in those of the query.
  Template<SequenceLayer> attention() const override {
    const auto width = static_cast<double>(model_dims);
    const auto head = static_cast<double>(dims_per_head);
    return DotProductAttention::HParams{
        .dims_per_head = dims_per_head,
        .query_scale = 1.0,
        .extra_logit = 0.0,
        .rotary_tpl = RotaryPositionEmbedding::HParams{},
        .layer = {.params_init = WeightInit{InitKind::kGaussianSqrtFanIn, 1.0}},
        .query_init = WeightInit{InitKind::kGaussian, 1.0 / std::sqrt(width * head)}};
  }

  Template<UnaryLayer> feed_forward() const override {
    return FeedForward::HParams{.activation_tpl = activation_tpl,
                                .use_gated_activation = true,
                                .layer = {.params_init = kFanInInit}};
  }
};

// Grok-1: each layer is a mixture of gated experts; key-value heads are shared by six query heads.
struct GrokRecipe : GshardLmRecipe {
  GrokRecipe() {
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
};

REGISTER_EXPERIMENT(
    nvidia, MoELarge, NvidiaMoeRecipe,
    "Pax's MoELarge: 12 mixtures of 16 experts, 26.8B weights; 2 hosts of 1×1×16×1 devices") {
  num_layers = 12;
  model_dims = 4096;
  ici_mesh_shape = {1, 1, 16, 1};
  dcn_mesh_shape = {1, 2, 1, 1};
}

REGISTER_EXPERIMENT(
    nvidia, GLaM64B64EProxy, GlamRecipe,
    "Pax's GLaM64B64EProxy: 8 layers, 4 of them with 64 experts, 143B weights; 1×2×64×1 devices") {
  ici_mesh_shape = {1, 2, 64, 1};
}

REGISTER_EXPERIMENT(
    nvidia, GLaM64B64EProxyEP, GlamRecipe,
    "Pax's GLaM64B64EProxy_EP: nvidia.GLaM64B64EProxy, 143B weights; 1×16×8×1 devices") {
  ici_mesh_shape = {1, 16, 8, 1};
}

// As published, on 1024 devices: table 4 and section 5.1 of the paper. Each token uses 97 of 1162
// billion weights.
struct GLaM64B64E : GlamRecipe {
  static constexpr std::string_view kSummary =
      "GLaM 64B/64E (Du et al., 2022): 1162B weights, batches of 1M tokens; 1×4×64×4 devices";
  GLaM64B64E() {
    num_layers = 64;
    num_heads = 128;
    vocab_size = 256'000;
    seq_len = 1024;
    percore_batch_size = 1;
    ici_mesh_shape = {1, 4, 64, 4};
    optimizer = LmOptimizer::kAdafactor;
    beta1 = 0.0;
    learning_rate = 0.01;
    warmup_steps = 10'000;
    weight_decay = 0.0;
  }

 protected:
  Learner::HParams learner() const override {
    Learner::HParams learner = GlamRecipe::learner();
    learner.optimizer_tpl.as<Adafactor::HParams>().schedule_tpl =
        LinearRampupSqrtDecay::HParams{.warmup_steps = warmup_steps.get()};
    return learner;
  }
};
REGISTER_EXPERIMENT(nvidia, GLaM64B64E)

// Pax's GLaM126M64EBase. Its loss of balance is divided by the number of mixtures.
struct Glam126M64E : Sizes126M<GlamRecipe> {
  Glam126M64E() {
    z_loss_weight = 0.0;
    load_balance_weight = 0.01 / 6;
    ici_mesh_shape = {1, 1, 64, 1};
  }
};

// Pax's GLaM64B64EBase.
struct Glam64B64EAdam : Glam126M64E {
  Glam64B64EAdam() {
    num_layers = 64;
    model_dims = 8192;
    dims_per_head = 128;
    seq_len = 1024;
    load_balance_weight = 0.01 / 32;
    ici_mesh_shape = {1, 1, 1, 8};
    dcn_mesh_shape = {1, 1, 64, 1};
    beta1 = 0.0;
    beta2 = 0.99;
    learning_rate = 2e-5;
    warmup_steps = 398;
    decay_end = 162'900;
    save_interval_steps = 100;
    save_max_to_keep = 2;
    summary_interval_steps = 10;
  }
};

REGISTER_EXPERIMENT(
    nvidia, PileGLaM126M64E, OnThePile<Glam126M64E>,
    "Pax's PileGLaM126M64E: 1.9B weights in 12 layers on the Pile; 1×1×64×1 devices") {}

REGISTER_EXPERIMENT(
    nvidia, PileGLaM64B64E, OnThePile<Glam64B64EAdam>,
    "Pax's PileGLaM64B64E: GLaM, 1143B weights, on the Pile; 64 hosts of 1×1×1×8 devices") {}

REGISTER_EXPERIMENT(
    nvidia, Grok, GrokRecipe,
    "Pax's Grok: 64 mixtures of 8 experts, 316B weights; 32 hosts of 1×1×8×1 devices") {
  ici_mesh_shape = {1, 1, 8, 1};
  dcn_mesh_shape = {1, 32, 1, 1};
}

REGISTER_EXPERIMENT(
    nvidia, GrokProxy, Grok,
    "Pax's Grok_Proxy: nvidia.Grok with 16 layers, 79.5B weights; 8 hosts of 1×1×8×1 devices") {
  num_layers = 16;
  dcn_mesh_shape = {1, 8, 1, 1};
}

// A batch has one sequence for each of 512 devices. A microbatch has one for each of the 64 devices
// of a stage.
REGISTER_EXPERIMENT(
    nvidia, GrokPP, GrokRecipe,
    "Pax's Grok_PP: nvidia.Grok, 316B weights in 8 stages of 8 hosts; 8×1×8×8×1 devices") {
  use_pipeline = true;
  microbatch_size = 64;
  ici_mesh_shape = {1, 1, 1, 8, 1};
  dcn_mesh_shape = {8, 1, 8, 1, 1};
}

REGISTER_EXPERIMENT(nvidia, GrokProxyPP, GrokPP,
                    "Pax's Grok_Proxy_PP: nvidia.GrokPP with 16 layers, 79.5B weights") {
  num_layers = 16;
}

}  // namespace
}  // namespace tessera
