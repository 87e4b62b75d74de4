// SPDX-License-Identifier: Apache-2.0
#include "tests/composition/features.h"

#include <algorithm>

#include "core/base/error.h"
#include "layers/attention/gated_delta_net.h"
#include "layers/attention/latent_attention.h"
#include "layers/feed_forward/feed_forward.h"
#include "tasks/task/learner/optimizers.h"
#include "tests/composition/recorded_gradient.h"

namespace tessera {
namespace {

// Large enough that a gradient that is zero up to rounding errors moves no weight.
constexpr double kEpsilon = 1e-4;

void set_mla(ModelParts& m, Chance& chance) {
  LatentAttention::HParams latent{
      .kv_lora_rank = 12, .dims_per_head = 4, .value_dims_per_head = 4, .rope_dims = 2};
  if (chance.coin()) latent.q_lora_rank = 12;
  m.other_attention = latent;
}

// Small weights, and norms that do not enlarge what is near 0: many layers would enlarge rounding
// errors.
void set_delta_net(ModelParts& m, Chance& chance) {
  GatedDeltaNet::HParams p{.num_kv_heads = m.sizes.heads / (1 + chance.below(2)),
                           .dims_per_head = 6,
                           .value_dims_per_head = 4,
                           .conv_width = 1 + chance.below(4),
                           .use_delta_rule = !chance.one_in(4),
                           .norm_epsilon = 1e-2};
  p.layer.params_init = WeightInit{InitKind::kGaussian, 0.1};
  m.other_attention = p;
  m.block.norm_tpl = RmsNorm::HParams{.epsilon = 0.1};
}

void set_biases(ModelParts& m, Chance&) { m.attention.use_bias = m.dense.use_bias = true; }

void set_soft_caps(ModelParts& m, Chance&) {
  m.attention.logit_cap = 2.0;
  m.loss.soft_cap = 3.0;
}

void set_qk_norm(ModelParts& m, Chance&) {
  const RmsNorm::HParams norm{.model_dims = m.sizes.head_dim, .axis = "head_dim"};
  m.attention.query_norm_tpl = m.attention.key_norm_tpl = norm;
}

void set_heads_norm(ModelParts& m, Chance&) {
  const int64_t heads = m.sizes.heads;
  m.attention.query_norm_tpl =
      HeadsRmsNorm::HParams{.num_heads = heads, .dims_per_head = m.sizes.head_dim};
  m.attention.key_norm_tpl =
      HeadsRmsNorm::HParams{.num_heads = m.attention.num_kv_heads.get_or(heads),
                            .dims_per_head = m.sizes.head_dim,
                            .axis = "kv_heads"};
}

void set_sinks(ModelParts& m, Chance& chance) {
  m.attention.use_sinks = chance.coin();
  if (!m.attention.use_sinks) m.attention.extra_logit = 0.5;
}

// One for each layer, or one that all layers share.
void set_position_bias(ModelParts& m, Chance& chance) {
  if (chance.one_in(3)) {
    m.attention.position_bias_tpl = AlibiBias::HParams{};
    return;
  }
  RelativePositionBias::HParams bias{
      .num_buckets = 8, .max_distance = 6, .bidirectional = chance.coin()};
  if (chance.coin()) bias.layer.shared_id = "bias";
  m.attention.position_bias_tpl = bias;
}

// Rules split key heads, so self- and cross-attention have equally many.
void set_encoder(ModelParts& m, Chance& chance) {
  m.has_encoder = true;
  m.cross_attention.num_kv_heads = m.attention.num_kv_heads;
  m.cross_attention.dims_per_head = m.sizes.head_dim;
  m.cross_attention.use_output_bias = chance.coin();
}

void set_layer_norm(ModelParts& m, Chance& chance) {
  const LayerNorm::HParams norm{.direct_scale = chance.coin()};
  m.block.norm_tpl = norm;
  m.lm.final_ln_tpl = norm;
}

void set_norm_policy(ModelParts& m, Chance& chance) {
  using enum NormPolicy;
  m.block.norm_policy = chance.one_of<NormPolicy>({kPost, kPostSkip, kPrimerHybrid});
}

void set_parallel(ModelParts& m, Chance& chance) {
  using enum NormPolicy;
  m.block.parallel = true;
  m.block.norm_policy = chance.one_of<NormPolicy>({kPre, kPostSkip, kPrimerHybrid});
}

// Without a norm the scores of many layers would grow, and rounding errors with them.
void set_bare_attention(ModelParts& m, Chance&) {
  m.block.use_attention_norm = false;
  m.block.residual_multiplier = 0.3;
}

// A part of each head is rotated, and positions are stretched.
void set_partial_rotary(ModelParts& m, Chance& chance) {
  RotaryPositionEmbedding::HParams rotary{.rotary_share = 0.5};
  const int64_t stretched = chance.below(4);
  if (stretched == 1) {
    rotary.yarn = RotaryYarnHParams{.factor = 4.0, .length = 8.0};
    rotary.output_scale = 1.2;
  } else if (stretched == 3) {
    rotary.rotary_share = 1.0;
    rotary.dynamic = RotaryDynamicHParams{.factor = 3.0, .length = 5.0};
  } else if (stretched == 2) {
    const auto pairs = static_cast<size_t>(m.sizes.head_dim / 4);
    rotary.long_sequences =
        RotaryLongHParams{.short_divisors = std::vector<double>(pairs, 1.5),
                          .long_divisors = std::vector<double>(pairs, 3.0),
                          .length = chance.coin() ? 4.0 : static_cast<double>(m.sizes.seq)};
  }
  m.attention.rotary_tpl = rotary;
}

void set_positions(ModelParts& m, Chance& chance) {
  m.attention.rotary_tpl = {};
  if (chance.coin())
    m.lm.position_emb_tpl = TrainablePositionalEmbedding::HParams{
        .max_seq_length = 2 * m.sizes.seq, .first_row = chance.below(m.sizes.seq)};
  else
    m.lm.position_emb_tpl = PositionalEmbedding::HParams{};
}

// A part of masked language models.
void set_masked_head(ModelParts& m, Chance& chance) {
  m.lm.head_tpl = HeadTransform::HParams{.norm_tpl = RmsNorm::HParams{}, .use_bias = chance.coin()};
}

void set_mtp(ModelParts& m, Chance& chance) {
  m.lm.mtp_tpl = MultiTokenPrediction::HParams{.num_tokens = 1 + chance.below(3)};
}

void set_experts(ModelParts& m, Chance& chance) {
  m.has_experts = true;
  m.router.top_k = 1 + chance.below(3);
  m.router.scores = chance.coin() ? RouterScores::kSoftmax : RouterScores::kSigmoid;
  m.router.normalize_weights = chance.coin();
  m.router.load_balance_weight = 0.0;
}

void set_expert_biases(ModelParts& m, Chance& chance) {
  m.router.use_bias = m.experts.use_bias = true;
  m.experts.activation_tpl = Swish::HParams{.slope = 1.7, .limit = 1.0};
  m.experts.use_gated_activation = chance.coin();
  if (!m.experts.use_gated_activation) return;
  m.experts.up_limit = 1.0;
  m.experts.up_offset = 1.0;
}

void set_shared_experts(ModelParts& m, Chance& chance) {
  m.experts.num_shared_experts = 1;
  m.experts.use_shared_gate = chance.coin();
}

void set_groups(ModelParts& m, Chance& chance) {
  m.router.num_groups = 2;
  m.router.top_groups = m.router.top_k > m.sizes.experts / 2 || chance.coin() ? 2 : 1;
  m.router.group_best = 1 + chance.below(2);
}

void set_capacity(ModelParts& m, Chance& chance) {
  set_experts(m, chance);
  m.router.capacity_factor = chance.one_of<double>({0.5, 1.0, 2.0});
}

void set_expert_choice(ModelParts& m, Chance& chance) {
  set_experts(m, chance);
  m.experts_choose = true;
  m.choice.capacity_factor = chance.one_of<double>({0.5, 1.0, 2.0});
}

void set_aux_losses(ModelParts& m, Chance& chance) {
  m.router.load_balance_weight = 0.1;
  m.router.load_balance_scope = chance.coin() ? BalanceScope::kBatch : BalanceScope::kExample;
  m.router.load_balance_first_choices = chance.coin();
  m.router.z_loss_weight = m.choice.z_loss_weight = 0.01;
}

void set_dropout(ModelParts& m, Chance&) {
  m.lm.embedding_dropout_rate = m.block.residual_dropout_rate = 0.1;
  m.attention.dropout_rate = 0.1;
  m.dense.dropout_rate = 0.2;
}

void set_bf16(ModelParts& m, Chance& chance) {
  m.task.dtypes =
      DTypePolicy{.compute = DType::kBF16, .reduce = chance.coin() ? DType::kBF16 : DType::kF32};
}

void set_fp8(ModelParts& m, Chance&) {
  m.task.dtypes = DTypePolicy{.compute = DType::kBF16, .matmul = MatmulPrecision::kFp8};
}

void set_adam(ModelParts& m, Chance&) {
  m.task.learner.optimizer_tpl = Adam::HParams{.epsilon = kEpsilon, .weight_decay = 0.1};
}

void set_adafactor(ModelParts& m, Chance& chance) {
  m.task.learner.optimizer_tpl =
      with_recorded_gradient(Adafactor::HParams{.beta1 = chance.coin() ? 0.9 : 0.0,
                                                .epsilon1 = kEpsilon * kEpsilon,
                                                .min_dim_size_to_factor = 8});
}

void set_muon(ModelParts& m, Chance& chance) {
  Muon::HParams muon{.nesterov = chance.coin(),
                     .epsilon = kEpsilon,
                     .dtype = DType::kF32,
                     .other_tpl = AdamW::HParams{.learning_rate = 1e-2, .epsilon = kEpsilon}};
  if (chance.coin()) muon.scale = MuonScale::kOriginal;
  if (chance.coin()) muon.state.first_moment = DType::kBF16;
  m.task.learner.optimizer_tpl = muon;
}

// With damping that keeps rounding errors small.
void set_shampoo(ModelParts& m, Chance& chance) {
  Shampoo::HParams shampoo{.learning_rate = 1e-2,
                           .root_interval = chance.coin() ? 1 : 10,
                           .damping = 1e-2,
                           .epsilon = kEpsilon,
                           .other_tpl = AdamW::HParams{.learning_rate = 1e-2, .epsilon = kEpsilon}};
  if (chance.coin()) shampoo.momentum = 0.0;
  if (chance.coin()) shampoo.statistics_decay = 1.0;
  if (chance.coin()) shampoo.scale = ShampooScale::kOriginal;
  if (chance.coin()) shampoo.max_precondition_dims = m.sizes.embed;
  if (chance.coin()) shampoo.block_axes = {"heads", "kv_heads"};
  m.task.learner.optimizer_tpl = shampoo;
}

void set_sgd(ModelParts& m, Chance& chance) {
  Sgd::HParams sgd{.weight_decay = 0.1};
  if (chance.coin()) sgd.momentum = 0.9;
  sgd.nesterov = sgd.momentum > 0.0 && chance.coin();
  m.task.learner.optimizer_tpl = with_recorded_gradient(sgd);
}

// A rate so small that the sign of an average near 0 moves no weight.
void set_lion(ModelParts& m, Chance&) {
  m.task.learner.optimizer_tpl =
      with_recorded_gradient(Lion::HParams{.learning_rate = 1e-15, .weight_decay = 0.1});
}

void set_lamb(ModelParts& m, Chance& chance) {
  m.task.learner.optimizer_tpl = Lamb::HParams{
      .epsilon = kEpsilon, .bias_correction = chance.coin(), .max_norm = chance.coin() ? 1.0 : 0.0};
}

void set_adagrad(ModelParts& m, Chance&) {
  m.task.learner.optimizer_tpl = with_recorded_gradient(
      Adagrad::HParams{.initial_accumulator = kEpsilon, .epsilon = kEpsilon});
}

void set_rms_prop(ModelParts& m, Chance& chance) {
  m.task.learner.optimizer_tpl = with_recorded_gradient(RmsProp::HParams{
      .epsilon = 1e-2, .momentum = chance.coin() ? 0.9 : 0.0, .centered = chance.coin()});
}

void set_amsgrad(ModelParts& m, Chance&) {
  m.task.learner.optimizer_tpl = AdamW::HParams{.epsilon = kEpsilon, .amsgrad = true};
}

void set_sophia(ModelParts& m, Chance&) {
  m.task.learner.optimizer_tpl = SophiaG::HParams{.learning_rate = 1e-2};
}

void set_schedule_free(ModelParts& m, Chance&) {
  m.task.learner.optimizer_tpl =
      ScheduleFreeAdamW::HParams{.epsilon = kEpsilon, .weight_decay = 0.1};
}

// A base model half as wide. Optimizers differ in their factors of learning rates.
void set_mup(ModelParts& m, Chance& chance) {
  if (chance.coin())
    set_sgd(m, chance);
  else if (chance.coin())
    set_muon(m, chance);
  m.task.mup_base = {{"embed", m.sizes.embed / 2}};
  m.loss.multiplier = 0.5;
  m.table_multiplier = 0.7;
}

// Lamb for feed-forward weights, AdamW for the others, with other rates for norms.
void set_several_optimizers(ModelParts& m, Chance& chance) {
  m.task.learner.optimizer_rules = {
      {"ffn", {".*ffn.*"}, Lamb::HParams{.learning_rate = 2e-3, .epsilon = kEpsilon}}};
  if (chance.coin()) m.task.learner.learning_rate_rules = {{{".*norm.*"}, 0.5}};
}

void set_plain_ffn(ModelParts& m, Chance& chance) {
  m.dense.use_gated_activation = false;
  m.dense.activation_tpl = GELU::HParams{};
  if (chance.coin()) m.dense.activation_tpl = ReLU::HParams{};
}

// Table and logits as in Pax.
void set_scaled_table(ModelParts& m, Chance&) { m.has_scaled_table = true; }

void set_multipliers(ModelParts& m, Chance&) {
  m.table_multiplier = 3.0;
  m.block.residual_multiplier = 0.5;
  m.loss.multiplier = 0.7;
}

void set_bf16_state(ModelParts& m, Chance&) {
  m.task.learner.optimizer_tpl = AdamW::HParams{
      .epsilon = kEpsilon, .state = {.first_moment = DType::kBF16, .rounding = Rounding::kNearest}};
}

void set_stochastic_state(ModelParts& m, Chance&) {
  m.task.learner.optimizer_tpl = AdamW::HParams{.epsilon = kEpsilon,
                                                .state = {.first_moment = DType::kBF16,
                                                          .second_moment = DType::kBF16,
                                                          .rounding = Rounding::kStochastic}};
}

// A schedule-free optimizer averages weights itself.
void set_ema(ModelParts& m, Chance&) {
  if (!m.task.learner.optimizer_tpl.holds<ScheduleFreeAdamW::HParams>())
    m.task.learner.ema_decay = 0.9;
}

void set_skip(ModelParts& m, Chance& chance) {
  m.task.learner.skip_step_gradient_norm_value = chance.one_of<double>({1e-6, 0.5, 1.0, 2.0});
}

// The second step is judged by the first only with a window of two, which is not full: it is state.
void set_step_window(ModelParts& m, Chance&) {
  m.task.learner.skip_step_deviations = 3.0;
  m.task.learner.skip_step_window = 2;
}

// The loss of the model in part, and the auxiliary losses several times.
void set_losses(ModelParts& m, Chance& chance) {
  set_aux_losses(m, chance);
  m.task.losses = {{"loss", 0.5}, {"aux_loss", 2.0}};
}

// From the second step on, or from the first.
void set_noise(ModelParts& m, Chance& chance) {
  m.task.variational_noise = {.scale = 0.05, .start_step = chance.coin() ? 1 : 0};
}

void set_transformations(ModelParts& m, Chance& chance) {
  auto& list = m.task.learner.gradient_transformations_tpl;
  list = {CentralizeGradient::HParams{},
          ClipGradientNorm::HParams{.max_norm = 0.1, .each_tensor = chance.coin()}};
  if (chance.coin()) list.push_back(ClipGradientValue::HParams{.limit = 0.01});
  if (chance.coin()) list.push_back(GradientNoise::HParams{.scale = 1e-3});
}

void set_clip_each(ModelParts& m, Chance&) {
  m.task.learner.clip_gradient_single_norm_to_value = 0.01;
}

// A feature that sets one field.
using Parts = ModelParts;
using Any = Chance;

const std::vector<Feature> kFeatures = {
    {"gqa", "heads", "", [](Parts& m, Any&) { m.attention.num_kv_heads = m.sizes.heads / 2; }},
    {"mqa", "heads", "", [](Parts& m, Any&) { m.attention.num_kv_heads = 1; }},
    {"fused_qkv", "heads", "", [](Parts& m, Any&) { m.attention.combine_qkv = true; }},
    {"mla", "heads", "", set_mla},
    {"delta_net", "heads", "", set_delta_net},
    {"output_gate", "", "", [](Parts& m, Any&) { m.attention.use_output_gate = true; }},
    {"qk_norm", "qk_norm", "", set_qk_norm},
    {"heads_norm", "qk_norm", "", set_heads_norm},
    {"window", "", "", [](Parts& m, Any& c) { m.attention.window = 1 + c.below(m.sizes.seq); }},
    {"sinks", "", "", set_sinks},
    {"position_bias", "", "", set_position_bias},
    {"encoder", "block", "", set_encoder},
    {"bidirectional", "", "", [](Parts& m, Any&) { m.attention.causal = false; }},
    {"biases", "", "", set_biases},
    {"soft_caps", "", "", set_soft_caps},
    {"per_dim_scale", "", "", [](Parts& m, Any&) { m.attention.use_per_dim_scale = true; }},
    {"layer_norm", "", "", set_layer_norm},
    {"norm_policy", "block", "", set_norm_policy},
    {"parallel", "block", "", set_parallel},
    {"bare_attention", "block", "", set_bare_attention},
    {"partial_rotary", "positions", "", set_partial_rotary},
    {"positions", "positions", "", set_positions},
    {"token_types", "", "", [](Parts& m, Any&) { m.lm.type_emb_tpl = TypeEmbedding::HParams{}; }},
    {"embedding_norm", "", "", [](Parts& m, Any&) { m.lm.embedding_ln_tpl = RmsNorm::HParams{}; }},
    {"masked_head", "", "", set_masked_head},
    {"mtp", "", "", set_mtp},
    {"teacher", "", "", [](Parts& m, Any&) { m.has_teacher = true; }},
    {"plain_ffn", "", "", set_plain_ffn},
    {"scaled_table", "", "", set_scaled_table},
    {"multipliers", "", "", set_multipliers},
    {"untied", "", "", [](Parts& m, Any&) { m.is_tied = false; }},
    {"z_loss", "", "", [](Parts& m, Any&) { m.loss.z_loss = 0.01; }},
    {"focal", "targets", "", [](Parts& m, Any&) { m.loss.focal_gamma = 2.0; }},
    {"label_smoothing", "targets", "", [](Parts& m, Any&) { m.loss.label_smoothing = 0.1; }},
    {"loss_chunks", "", "", [](Parts& m, Any& c) { m.loss.chunk_tokens = 1 + c.below(60); }},
    {"experts", "experts", "", set_experts},
    {"capacity", "experts", "", set_capacity},
    {"expert_choice", "experts", "", set_expert_choice},
    {"shared_experts", "", "experts", set_shared_experts},
    {"aux_losses", "", "experts", set_aux_losses},
    {"losses", "", "experts", set_losses},
    {"router_groups", "", "experts", set_groups},
    {"expert_biases", "", "experts", set_expert_biases},
    {"router_bias", "", "experts", [](Parts& m, Any&) { m.router.bias_rate = 0.01; }},
    {"router_jitter", "", "experts", [](Parts& m, Any&) { m.router.jitter = 0.1; }},
    {"dropout", "", "", set_dropout},
    {"packing", "", "", [](Parts& m, Any&) { m.is_packed = true; }},
    {"padding", "", "", [](Parts& m, Any&) { m.has_padding = true; }},
    {"token_weights", "", "", [](Parts& m, Any&) { m.has_token_weights = true; }},
    {"microbatches", "microbatches", "",
     [](Parts& m, Any&) { m.microbatches = Microbatches::kFew; }},
    {"many_microbatches", "microbatches", "",
     [](Parts& m, Any&) { m.microbatches = Microbatches::kMany; }},
    {"uneven_microbatches", "microbatches", "",
     [](Parts& m, Any&) { m.microbatches = Microbatches::kUneven; }},
    {"save_nothing", "remat", "",
     [](Parts& m, Any&) { m.task.train.remat_policy = "save_nothing"; }},
    {"save_dots", "remat", "", [](Parts& m, Any&) { m.task.train.remat_policy = "save_dot_only"; }},
    {"save_names", "remat", "",
     [](Parts& m, Any&) { m.task.train.remat_policy = "out_proj,ffn1"; }},
    {"repeated", "", "", [](Parts& m, Any&) { m.is_repeated = true; }},
    {"frozen", "", "", [](Parts& m, Any& c) { m.frozen = 1 + c.below(3); }},
    {"bf16", "dtypes", "", set_bf16},
    {"fp8", "dtypes", "", set_fp8},
    {"adam", "optimizer", "", set_adam},
    {"adafactor", "optimizer", "", set_adafactor},
    {"muon", "optimizer", "", set_muon},
    {"shampoo", "optimizer", "", set_shampoo},
    {"sgd", "optimizer", "", set_sgd},
    {"lion", "optimizer", "", set_lion},
    {"lamb", "optimizer", "", set_lamb},
    {"adagrad", "optimizer", "", set_adagrad},
    {"rms_prop", "optimizer", "", set_rms_prop},
    {"amsgrad", "optimizer", "", set_amsgrad},
    {"schedule_free", "optimizer", "", set_schedule_free},
    {"sophia", "optimizer", "", set_sophia},
    {"several_optimizers", "optimizer", "", set_several_optimizers},
    {"mup", "optimizer", "", set_mup},
    {"bf16_state", "optimizer", "", set_bf16_state},
    {"stochastic_state", "optimizer", "", set_stochastic_state},
    {"clip", "clip", "", [](Parts& m, Any&) { m.task.learner.clip_gradient_norm_to_value = 0.1; }},
    {"clip_each", "clip", "", set_clip_each},
    {"skip", "", "", set_skip},
    {"step_window", "", "", set_step_window},
    {"noise", "", "", set_noise},
    {"transformations", "", "", set_transformations},
    {"ema", "", "", set_ema},
};

}  // namespace

const std::vector<Feature>& features() { return kFeatures; }

const Feature& feature(std::string_view name) {
  const auto found = std::ranges::find(kFeatures, name, &Feature::name);
  std::vector<std::string> names;
  for (const Feature& each : kFeatures) names.emplace_back(each.name);
  if (found == kFeatures.end())
    fail("no feature '{}' of a composition{}", name, did_you_mean(name, names));
  return *found;
}

}  // namespace tessera
