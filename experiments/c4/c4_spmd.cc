// SPDX-License-Identifier: Apache-2.0
#include "experiments/c4/c4_spmd.h"

#include <cmath>

#include "core/base/error.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "plugins/registry.h"
#include "tasks/learner/schedules.h"
#include "tasks/single_task.h"

namespace tessera {
namespace {

constexpr int64_t kTrainSeed = 9876;  // Of the order of training data.
constexpr int64_t kShuffledDocuments = 256;
constexpr int64_t kEvalBatches = 8;  // Of synthetic data, which is endless.

}  // namespace

void C4Spmd::shrink() {
  Experiment::shrink();
  num_layers = 2;
  num_heads = 4;
  model_dims = num_heads * 8;
  hidden_dims = 4 * model_dims;
  vocab_size = 264;  // Bytes and the reserved id, rounded up.
  tokenizer = "bytes";
  seq_len = 32;
  if (global_batch_size.has()) global_batch_size = 8;
  percore_batch_size = 2;
  data = C4Data::kSynthetic;
  num_train_steps = kSmokeSteps;
  warmup_steps = 2;
  decay_end = kSmokeSteps;
}

int64_t C4Spmd::batch_size() const {
  if (global_batch_size.has()) return global_batch_size.get();
  if (ici_mesh_shape.empty())
    fail(
        "percore_batch_size={} is per device of a declared mesh, but ici_mesh_shape is empty; set "
        "it, or global_batch_size",
        percore_batch_size);
  int64_t devices = 1;
  for (const int64_t size : ici_mesh_shape) devices *= size;
  for (const int64_t size : dcn_mesh_shape) devices *= size;
  return percore_batch_size * devices;
}

Template<BaseModel> C4Spmd::model() const {
  const LayerNorm::HParams norm{.epsilon = 1e-6, .direct_scale = false};
  const TransformerBlock::HParams block{
      .norm_policy = NormPolicy::kPre,
      .attention_tpl = DotProductAttention::HParams{.combine_qkv = true,
                                                    .use_bias = false,
                                                    .use_per_dim_scale = true,
                                                    .logit_cap = 50.0,
                                                    .last_two_axes_fans = true},
      .ffn_tpl = FeedForward::HParams{.activation_tpl = GELU::HParams{.approximate = true},
                                      .use_gated_activation = false,
                                      .use_bias = true},
      .norm_tpl = norm};
  const WeightInit table_init{InitKind::kGaussian,
                              1.0 / std::sqrt(static_cast<double>(model_dims))};
  return LanguageModel::HParams{
      .lm_tpl = TransformerLm::HParams{
          .vocab_size = vocab_size,
          .model_dims = model_dims,
          .num_layers = num_layers,
          .num_heads = num_heads,
          .hidden_dims = hidden_dims,
          .position_emb_tpl = PositionalEmbedding::HParams{},
          .softmax_tpl = SharedEmbeddingSoftmax::HParams{.scale_sqrt_depth = true,
                                                         .use_bias = true,
                                                         .loss = {.soft_cap = 30.0},
                                                         .layer = {.params_init = table_init}},
          .stacked_transformer_tpl = Repeated::HParams{.block_tpl = block},
          .final_ln_tpl = norm,
          .params_init = WeightInit{InitKind::kXavier, 1.0}}};
}

Learner::HParams C4Spmd::learner() const {
  const LinearRampupExponentialDecay::HParams schedule{.warmup_steps = warmup_steps,
                                                       .decay_start = warmup_steps + 1,
                                                       .decay_end = decay_end,
                                                       .min_ratio = 0.1};
  return {.optimizer_tpl = Adam::HParams{.learning_rate = learning_rate,
                                         .schedule_tpl = schedule,
                                         .beta1 = 0.9,
                                         .beta2 = 0.99,
                                         .epsilon = 1e-6,
                                         .clip_threshold = 1.0,
                                         .weight_decay = weight_decay},
          .clip_gradient_norm_to_value = 5.0};
}

// Evaluation reads each example of `validation` once.
Template<BaseInput> C4Spmd::input(std::string_view split) const {
  const bool train = split == "train";
  if (data == C4Data::kSynthetic)
    return SyntheticInput::HParams{.name = std::string(split),
                                   .global_batch_size = batch_size(),
                                   .seq_len = seq_len,
                                   .num_batches = train ? -1 : kEvalBatches,
                                   .seed = train ? kTrainSeed : kTrainSeed + 1};
  if (data == C4Data::kShards)
    return StreamingTextInput::HParams{
        .path = train ? train_shards : validation_shards,
        .tokenizer = tokenizer,
        .split = StreamSplit::kAll,  // C4 has separate validation files.
        .name = std::string(split),
        .global_batch_size = batch_size(),
        .seq_len = seq_len,
        .labels = Labels::kShiftRight,
        .shuffle = train,
        .shuffle_documents = train ? kShuffledDocuments : 1,
        .repeat = train,
        .seed = kTrainSeed};
  return FlatTokensInput::HParams{.path = flat_tokens_path,
                                  .split = std::string(split),
                                  .global_batch_size = batch_size(),
                                  .seq_len = seq_len,
                                  .labels = Labels::kShiftRight,
                                  .shuffle = train ? Shuffle::kFull : Shuffle::kNone,
                                  .repeat = train,
                                  .seed = kTrainSeed};
}

ExperimentConfig C4Spmd::build() const {
  return {.mesh = mesh(),
          .task = SingleTask::HParams{.dtypes = DTypePolicy{.param = DType::kF32,
                                                            .compute = compute_dtype},
                                      .model = model(),
                                      .learner = learner(),
                                      .train = {.num_train_steps = num_train_steps,
                                                .remat_policy = remat_policy,
                                                .save_interval_steps = save_interval_steps,
                                                .save_max_to_keep = 10,
                                                .eval_interval_steps = eval_interval_steps,
                                                .summary_interval_steps = summary_interval_steps}},
          .input = input("train"),
          .eval_inputs = {{"validation", input("validation")}}};
}

// 1.10 billion weights, fully sharded over four devices.
struct Spmd1B : C4Spmd {
  static constexpr std::string_view kSummary =
      "Pax's C4Spmd1BAdam4Replicas: 1.10B weights on 4 devices; --set flat_tokens_path=FILE";
  Spmd1B() {
    num_layers = 13;
    model_dims = 2560;
    hidden_dims = 4 * 2560;
    num_heads = 20;
    percore_batch_size = 32;
    ici_mesh_shape = {1, 4, 1};
  }
};
REGISTER_EXPERIMENT(c4, Spmd1B)

// Every axis is divisible by eight. The mesh takes all available devices; the batch is fixed.
struct Spmd1BSmoke : Spmd1B {
  static constexpr std::string_view kSummary =
      "c4.Spmd1B with 2 narrow layers and 200 steps, on synthetic data or --set data=flat_tokens";
  Spmd1BSmoke() {
    num_layers = 2;
    model_dims = 64;
    hidden_dims = 4 * 64;
    num_heads = 8;
    vocab_size = 264;  // Bytes and the reserved id, rounded up.
    tokenizer = "bytes";
    seq_len = 64;
    global_batch_size = 16;
    ici_mesh_shape = {};
    data = C4Data::kSynthetic;
    num_train_steps = 200;
    warmup_steps = 40;
    decay_end = 200;
    save_interval_steps = 100;
  }
};
REGISTER_EXPERIMENT(c4, Spmd1BSmoke)

}  // namespace tessera
