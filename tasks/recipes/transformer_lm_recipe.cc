// SPDX-License-Identifier: Apache-2.0
#include "tasks/recipes/transformer_lm_recipe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "tasks/recipes/recipe_data.h"
#include "tasks/task/learner/schedules.h"
#include "tasks/task/mup.h"
#include "tasks/task/pipeline_schedules.h"
#include "tasks/task/single_task.h"

namespace tessera {
namespace {

constexpr double kAdafactorDecay = 0.99;  // Pax: decay_adam of set_default_adafactor.

// Pax's layouts, also within a stage (praxis: set_sharding_params_v1).
RulesConfig pax_rules(bool use_pipeline) {
  if (!use_pipeline) return strategy_rules(Strategy::kPax);
  RulesConfig rules = strategy_rules(Strategy::kFullyShardedTensorPipeline);
  rules.activations = "residual: embed -> mdl, " + rules.activations;
  return rules;
}

// Constants of MLPerf's rule.
constexpr int64_t kReferenceBatch = 1536;
constexpr int64_t kWarmupSteps = 265;   // For the reference batch.
constexpr int64_t kDecayEnd = 108'600;  // For the reference batch.
constexpr int64_t kMediumBatch = 3584;  // The largest one with the lower rate.
constexpr int64_t kLargestBatch = 8192;

int64_t scaled(int64_t steps, int64_t batch) {
  return (steps * kReferenceBatch + batch - 1) / batch;
}

}  // namespace

// The product of these axes within and across slices; 1 for an axis that the mesh does not have.
int64_t TransformerLmRecipe::mesh_size(size_t first_axis, size_t end_axis) const {
  int64_t devices = 1;
  for (const std::vector<int64_t>* shape : {&ici_mesh_shape, &dcn_mesh_shape})
    for (size_t axis = first_axis; axis < std::min(end_axis, shape->size()); ++axis)
      devices *= (*shape)[axis];
  return devices;
}

void TransformerLmRecipe::shrink() {
  Experiment::shrink();
  const int64_t stages = use_pipeline ? mesh_size(0, 1) : 1;
  num_layers = 2 * stages * circular_repeat;
  if (num_kv_heads.has()) {
    const int64_t queries_per_key = std::max<int64_t>(1, heads() / num_kv_heads.get());
    num_kv_heads = 2;
    num_heads = 2 * queries_per_key;
  } else {
    num_heads = 4;
  }
  dims_per_head = 8;
  model_dims = 8 * num_heads.get();
  if (hidden_dims.has()) hidden_dims = 2 * model_dims;
  if (mup_base_dims > 0) mup_base_dims = model_dims / 2;
  vocab_size = 264;  // Bytes and the reserved id, rounded up.
  seq_len = 32;
  trainable_positions = 32;
  // One row of each microbatch, and of each batch, on each of the devices that share the batch.
  const size_t first_axis = use_pipeline ? 1 : 0;
  const int64_t rows = mesh_size(first_axis, first_axis + 2);
  if (microbatch_size.has()) {
    num_microbatches = 2 * stages;
    microbatch_size.reset();
  }
  global_batch_size = std::max<int64_t>(rows, 4) * num_microbatches;
  num_train_steps = kSmokeSteps;
  warmup_steps = 2;
  decay_start.reset();
  decay_end = kSmokeSteps;
}

// Finds errors that building the model would report later, in terms of its layers, or not at all.
void TransformerLmRecipe::validate() const {
  Experiment::validate();
  if (num_kv_heads.has() && (num_kv_heads.get() < 1 || heads() % num_kv_heads.get() != 0))
    fail("num_kv_heads={} does not divide num_heads={}", num_kv_heads.get(), heads());
  if (positions == LmPositions::kTrainable && seq_len > trainable_positions)
    fail(
        "seq_len={} is more than trainable_positions={}, the rows of the table of positions; raise "
        "trainable_positions, or choose other positions",
        seq_len, trainable_positions);
  if (circular_repeat > 1 && !use_pipeline)
    fail("circular_repeat={} has no effect without use_pipeline=true", circular_repeat);
}

void TransformerLmRecipe::use_gpt3_layers() {
  positions = LmPositions::kTrainable;
  attention_logit_cap = 0.0;
  softmax_logit_cap = 0.0;
  use_attention_bias = true;
  use_softmax_bias = false;
  use_per_dim_scale = false;
  scale_embedding = false;
  norm_epsilon = 1e-5;
}

void TransformerLmRecipe::use_gpt3_optimizer() {
  weight_decay = 0.1;
  beta1 = 0.9;
  beta2 = 0.95;
  adam_epsilon = 1e-8;
  update_rms_cap = 0.0;
  clip_gradient_norm = 1.0;
  schedule = LmSchedule::kCosine;
  min_learning_rate_ratio = 0.1;
}

int64_t TransformerLmRecipe::batch_size() const {
  if (global_batch_size.has()) return global_batch_size.get();
  if (ici_mesh_shape.empty())
    fail(
        "percore_batch_size={} is per device of a declared mesh, but ici_mesh_shape is empty; set "
        "it, or global_batch_size",
        percore_batch_size);
  const int64_t devices = mesh_size(0, ici_mesh_shape.size());
  const double sequences = percore_batch_size * static_cast<double>(devices);
  const int64_t whole = std::llround(sequences);
  if (whole < 1 || std::abs(sequences - static_cast<double>(whole)) > 1e-6)
    fail(
        "percore_batch_size={} on {} devices gives a batch of {} sequences, expected a whole "
        "number of at least 1; change it, or set global_batch_size",
        percore_batch_size, devices, sequences);
  return whole;
}

int64_t TransformerLmRecipe::heads() const {
  if (num_heads.has()) return num_heads.get();
  if (dims_per_head < 1 || model_dims % dims_per_head != 0)
    fail("dims_per_head={} does not divide model_dims={}; change it, or set num_heads",
         dims_per_head, model_dims);
  return model_dims / dims_per_head;
}

Template<UnaryLayer> TransformerLmRecipe::norm() const {
  if (norm_kind == LmNorm::kRmsNorm) return RmsNorm::HParams{.epsilon = norm_epsilon};
  return LayerNorm::HParams{.epsilon = norm_epsilon, .direct_scale = false};
}

Template<SequenceLayer> TransformerLmRecipe::attention() const {
  DotProductAttention::HParams p{.num_kv_heads = num_kv_heads,
                                 .combine_qkv = combine_qkv && !num_kv_heads.has(),
                                 .use_bias = use_attention_bias,
                                 .use_per_dim_scale = use_per_dim_scale,
                                 .logit_cap = attention_logit_cap,
                                 .dropout_rate = dropout_rate,
                                 .last_two_axes_fans = true};
  if (positions == LmPositions::kRotary) p.rotary_tpl = RotaryPositionEmbedding::HParams{};
  return p;
}

Template<UnaryLayer> TransformerLmRecipe::feed_forward() const {
  return FeedForward::HParams{.activation_tpl = activation_tpl,
                              .use_gated_activation = use_gated_activation,
                              .use_bias = use_ffn_bias,
                              .dropout_rate = dropout_rate};
}

TransformerLm::HParams TransformerLmRecipe::language_model() const {
  const WeightInit table_init{
      InitKind::kGaussian,
      softmax_init_std.get_or(
          1.0 / std::sqrt(static_cast<double>(mup_base_dims > 0 ? mup_base_dims : model_dims)))};
  const SoftmaxOptions loss{.soft_cap = softmax_logit_cap};
  TransformerLm::HParams lm{
      .vocab_size = vocab_size,
      .model_dims = model_dims,
      .num_layers = num_layers,
      .num_heads = heads(),
      .hidden_dims = hidden_dims.get_or(4 * model_dims),
      .softmax_tpl = SharedEmbeddingSoftmax::HParams{.scale_sqrt_depth = scale_embedding,
                                                     .use_bias = use_softmax_bias,
                                                     .loss = loss,
                                                     .layer = {.params_init = table_init}},
      .final_ln_tpl = norm(),
      .params_init = init_std.has() ? WeightInit{InitKind::kGaussian, init_std.get()}
                                    : WeightInit{InitKind::kXavier, 1.0}};
  if (use_separate_embedding) {
    lm.separate_embedding_tpl = Embedding::HParams{.scale_sqrt_depth = scale_embedding};
    lm.softmax_tpl = FullSoftmax::HParams{
        .use_bias = use_softmax_bias, .loss = loss, .layer = {.params_init = table_init}};
  }
  if (positions == LmPositions::kSinusoidal) lm.position_emb_tpl = PositionalEmbedding::HParams{};
  if (positions == LmPositions::kTrainable)
    lm.position_emb_tpl =
        TrainablePositionalEmbedding::HParams{.max_seq_length = trainable_positions};
  return lm;
}

Template<BaseModel> TransformerLmRecipe::model() const {
  const TransformerBlock::HParams block{.norm_policy = norm_policy,
                                        .attention_tpl = attention(),
                                        .ffn_tpl = feed_forward(),
                                        .norm_tpl = norm(),
                                        .residual_dropout_rate = dropout_rate};
  TransformerLm::HParams lm = language_model();
  if (use_repeated_layer || use_pipeline)
    lm.stacked_transformer_tpl = Repeated::HParams{.block_tpl = block};
  else
    lm.stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block};
  return LanguageModel::HParams{.lm_tpl = lm};
}

Template<BaseOptimizer> TransformerLmRecipe::optimizer_with(
    const Template<BaseSchedule>& schedule_tpl) const {
  const double rate =
      learning_rate.has() ? learning_rate.get() : mlperf_gpt3_rule(batch_size()).learning_rate;
  if (optimizer == LmOptimizer::kAdam)
    return Adam::HParams{.learning_rate = rate,
                         .schedule_tpl = schedule_tpl,
                         .beta1 = beta1,
                         .beta2 = beta2,
                         .epsilon = adam_epsilon,
                         .clip_threshold = update_rms_cap,
                         .weight_decay = weight_decay};
  return Adafactor::HParams{.learning_rate = rate,
                            .schedule_tpl = schedule_tpl,
                            .decay_adam = kAdafactorDecay,
                            .beta1 = beta1,
                            .clip_threshold = update_rms_cap,
                            .multiply_by_parameter_scale = false,
                            .weight_decay = weight_decay};
}

Learner::HParams TransformerLmRecipe::learner() const {
  const int64_t warmup =
      warmup_steps.has() ? warmup_steps.get() : mlperf_gpt3_rule(batch_size()).warmup_steps;
  const int64_t end = decay_end.has() ? decay_end.get() : mlperf_gpt3_rule(batch_size()).decay_end;
  const int64_t start = decay_start.get_or(warmup + 1);
  Template<BaseSchedule> schedule_tpl = ConstantSchedule::HParams{};
  if (schedule == LmSchedule::kExponential)
    schedule_tpl = LinearRampupExponentialDecay::HParams{.warmup_steps = warmup,
                                                         .decay_start = start,
                                                         .decay_end = end,
                                                         .min_ratio = min_learning_rate_ratio};
  if (schedule == LmSchedule::kCosine)
    schedule_tpl = LinearRampupCosineDecay::HParams{.warmup_steps = warmup,
                                                    .decay_start = start,
                                                    .decay_end = end,
                                                    .min_ratio = min_learning_rate_ratio};
  return {.optimizer_tpl = optimizer_with(schedule_tpl),
          .clip_gradient_norm_to_value = clip_gradient_norm};
}

Template<BaseInput> TransformerLmRecipe::input(std::string_view split) const {
  if (flat_tokens_path.empty()) return generated_split(split, kTrainSeed, batch_size(), seq_len);
  const bool is_train = split == "train";
  return FlatTokensInput::HParams{.path = flat_tokens_path,
                                  .split = std::string(split),
                                  .global_batch_size = batch_size(),
                                  .seq_len = seq_len,
                                  .labels = Labels::kShiftRight,
                                  .shuffle = is_train ? Shuffle::kFull : Shuffle::kNone,
                                  .repeat = is_train,
                                  .seed = kTrainSeed};
}

TrainHParams TransformerLmRecipe::train() const {
  TrainHParams p{.num_train_steps = num_train_steps,
                 .num_microbatches = num_microbatches,
                 .remat_policy = remat_policy,
                 .save_interval_steps = save_interval_steps,
                 .save_max_to_keep = save_max_to_keep,
                 .eval_interval_steps = eval_interval_steps,
                 .summary_interval_steps = summary_interval_steps};
  // Without chunks 1F1B, the default: it takes as long as Pax's schedule (GPipe's) and holds fewer
  // activations.
  if (use_pipeline && circular_repeat > 1)
    p.pipeline_schedule = CircularPipeline::HParams{.chunks = circular_repeat};
  if (microbatch_size.has()) {
    const int64_t size = microbatch_size.get();
    if (size < 1 || batch_size() % size != 0)
      fail("microbatch_size={} does not divide the global batch of {} sequences", size,
           batch_size());
    p.num_microbatches = batch_size() / size;
  }
  if (target_log_pplx.has())
    p.early_stopping = {.metric = "eval/validation/log_pplx",
                        .target = target_log_pplx.get(),
                        .stop_at_target = true};
  return p;
}

ExperimentConfig TransformerLmRecipe::build() const {
  MeshConfig mesh_config = mesh();
  if (use_pipeline)
    mesh_config.axis_names =
        strategy_axes(Strategy::kFullyShardedTensorPipeline, std::move(mesh_config.axis_names));
  SingleTask::HParams task{.dtypes = DTypePolicy{.param = DType::kF32, .compute = compute_dtype},
                           .model = model(),
                           .learner = learner(),
                           .train = train()};
  task.mup_base = use_mup(task.model, model_dims, mup_base_dims);
  return {.mesh = mesh_config,
          .rules = pax_rules(use_pipeline),
          .task = task,
          .input = input("train"),
          .eval_inputs = {{"validation", input("validation")}}};
}

MlperfGpt3Rule mlperf_gpt3_rule(int64_t global_batch_size) {
  if (global_batch_size < 1 || global_batch_size > kLargestBatch)
    fail(
        "MLPerf's rule for GPT-3 is for global batches of 1 to {} sequences, got {}; set "
        "learning_rate, warmup_steps and decay_end",
        kLargestBatch, global_batch_size);
  return {.learning_rate = global_batch_size <= kMediumBatch ? 2e-5 : 3e-5,
          .warmup_steps = scaled(kWarmupSteps, global_batch_size),
          .decay_end = scaled(kDecayEnd, global_batch_size)};
}

}  // namespace tessera
