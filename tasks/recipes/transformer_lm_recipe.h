// SPDX-License-Identifier: Apache-2.0
// The base of recipes for decoder-only language models, with the knobs and the defaults of Pax:
// TransformerLmSpmdAdafactor and TransformerLmSpmdPipelineAdafactor of
// paxml/tasks/lm/model_params.py in one struct, and with Adam, as in its C4 recipes, the second
// struct below. Comments name Pax's constant where ours has another name. Defaults that Pax does
// not write down come from the layers of praxis; they are knobs too.
//
// It is part of the library `tasks`, because several families of experiments/ and those of other
// projects derive from it. A recipe sets knobs in its constructor; a family may override the
// virtual functions for another feed-forward layer, other data and so on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/hparams/fields.h"
#include "layers/models/language_model.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

enum class LmPositions {
  kSinusoidal,  // Added to the embeddings; the default of praxis's TransformerLm.
  kTrainable,   // Pax: TRAINABLE_POSITION_EMB.
  kRotary,      // In attention, and nothing is added to the embeddings.
  kNone,
};

enum class LmNorm { kLayerNorm, kRmsNorm };

enum class LmOptimizer { kAdam, kAdafactor };

// The decay after a linear warm-up. Pax: LR_SCHEDULE.
enum class LmSchedule { kExponential, kCosine, kConstant };

struct TransformerLmRecipe : Experiment {
  using Base = Experiment;

  // Sizes.
  int64_t num_layers = 10;
  int64_t model_dims = 2048;
  Field<int64_t> hidden_dims;   // 4·model_dims unless set.
  Field<int64_t> num_heads;     // model_dims / dims_per_head unless set.
  int64_t dims_per_head = 128;  // Used where num_heads is unset; else model_dims / num_heads.
  Field<int64_t> num_kv_heads;  // num_heads unless set; fewer are grouped-query attention.
  int64_t mup_base_dims = 0;    // muP: model_dims of the base model; its other sizes in proportion.
  int64_t vocab_size = 32000;
  int64_t seq_len = 1024;              // Pax: MAX_SEQ_LEN.
  DType compute_dtype = DType::kBF16;  // Pax: FPROP_DTYPE. Weights are f32.

  // Sequences per device and step, possibly a fraction. The global batch is this times the number
  // of devices in ici_mesh_shape and dcn_mesh_shape, unless global_batch_size is set.
  double percore_batch_size = 1.0;
  Field<int64_t> global_batch_size;

  std::string flat_tokens_path;  // With splits `train` and `validation`; empty: generated data.

  // Layers. Caps: cap·tanh(x/cap), 0 for none.
  Template<Activation> activation_tpl = ReLU::HParams{};  // Pax: ACTIVATION_CLS.
  bool use_gated_activation = false;
  bool use_ffn_bias = true;         // praxis: TransformerFeedForward.has_bias.
  bool use_attention_bias = false;  // For queries, keys, values and the output. Pax: USE_BIAS.
  bool combine_qkv = true;          // Without effect if num_kv_heads is set.
  bool use_per_dim_scale = true;    // praxis: DotProductAttention.internal_enable_per_dim_scale.
  double attention_logit_cap = 50.0;
  LmPositions positions = LmPositions::kSinusoidal;
  int64_t trainable_positions = 16384;  // Rows of the table. Pax: TRAINABLE_PE_MAX_SEQ_LEN.
  LmNorm norm_kind = LmNorm::kLayerNorm;
  double norm_epsilon = 1e-6;  // praxis: LayerNorm.epsilon.
  NormPolicy norm_policy = NormPolicy::kPre;
  double dropout_rate = 0.0;  // For attention probabilities, hidden activations and residuals.
  bool use_separate_embedding = false;
  bool scale_embedding = true;   // By √model_dims. praxis: scale_sqrt_depth.
  bool use_softmax_bias = true;  // praxis: FullSoftmax.feed_forward_tpl.has_bias.
  double softmax_logit_cap = 30.0;
  Field<double> init_std;  // Deviation of normal initial weights; unset: Xavier, Pax's default.
  Field<double> softmax_init_std;  // For the softmax's table; 1/√model_dims unless set.

  // Repeated layers are one loop over stacked weights, otherwise each has its own nodes. Layers of
  // a pipeline are always stacked.
  bool use_repeated_layer = false;
  std::string remat_policy = "save_nothing";  // Pax: CHECKPOINT_POLICY.

  // A pipeline: the mesh is stage × replica × data × mdl, and each microbatch goes through all
  // stages, circular_repeat times. The first size of the mesh is Pax's NUM_STAGES.
  bool use_pipeline = false;
  Field<int64_t> microbatch_size;  // Sequences on all devices; it divides the global batch.
  int64_t num_microbatches = 1;    // Where microbatch_size is unset.
  int64_t circular_repeat = 1;     // Chunks of layers on each stage.

  // Optimizer. Adam and Adafactor cap the root mean square of each tensor's update.
  LmOptimizer optimizer = LmOptimizer::kAdafactor;
  double beta1 = 0.9;
  double beta2 = 0.99;  // Only Adam.
  double adam_epsilon = 1e-6;
  double update_rms_cap = 1.0;      // <= 0: none. Pax: ADAM_CLIP_THRESHOLD.
  double clip_gradient_norm = 5.0;  // 0: none. Pax: CLIP_GRADIENT_NORM_TO_VALUE.
  double weight_decay = 1e-3;       // For every weight, also biases and norms.
  // If a recipe leaves one of the next four unset, it follows MLPerf's rule for GPT-3
  // (mlperf_gpt3_rule), as in Pax.
  Field<double> learning_rate = 2.5e-4;
  Field<int64_t> warmup_steps = 4000;
  Field<int64_t> decay_end = 100'000;
  Field<int64_t> decay_start;  // Unset: the step after the warm-up.
  LmSchedule schedule = LmSchedule::kExponential;
  double min_learning_rate_ratio = 0.1;

  // Training. Pax: CHECKPOINT_EVERY_N_STEPS, CHECKPOINT_MAX_TO_KEEP.
  int64_t num_train_steps = 10'000'000;  // Pax's SingleTask.
  int64_t save_interval_steps = 5000;
  int64_t save_max_to_keep = 10;
  int64_t eval_interval_steps = 100;
  int64_t summary_interval_steps = 100;
  Field<double> target_log_pplx;  // Stops when an evaluation reaches it. Pax: TARGET_LOG_PPLX.
  FIELDS(About(num_layers, kLayerCount), About(model_dims, "width of the residual", kSize),
         About(hidden_dims, "4·model_dims unless set", kSize),
         About(num_heads, "model_dims / dims_per_head unless set", kSize),
         About(dims_per_head, "used where num_heads is unset", kSize),
         About(num_kv_heads, "num_heads unless set; fewer are grouped-query attention", kSize),
         About(mup_base_dims, "muP: model_dims of the base model; 0: standard", kNotNegative),
         About(vocab_size, kSize), About(seq_len, kSize), compute_dtype,
         About(percore_batch_size,
               "sequences per device and step, where global_batch_size is unset",
               {.above = 0, .max = 1 << 24}),
         About(global_batch_size, kSize),
         About(flat_tokens_path, "with splits `train` and `validation`; empty: generated data"),
         activation_tpl, use_gated_activation, use_ffn_bias, use_attention_bias, combine_qkv,
         use_per_dim_scale,
         About(attention_logit_cap, "cap of scores, c·tanh(x/c); 0: none", kNotNegative), positions,
         About(trainable_positions, "rows of the table", kSize), norm_kind,
         About(norm_epsilon, kNotNegative), norm_policy,
         About(dropout_rate, "of attention probabilities, hidden activations and residuals", kRate),
         use_separate_embedding, scale_embedding, use_softmax_bias,
         About(softmax_logit_cap, "cap of logits, c·tanh(x/c); 0: none", kNotNegative),
         About(init_std, "of normal initial weights; unset: Xavier", kNotNegative),
         About(softmax_init_std, "1/√model_dims unless set", kNotNegative), use_repeated_layer,
         remat_policy, use_pipeline,
         About(microbatch_size, "sequences on all devices; it divides the global batch", kSize),
         About(num_microbatches, "where microbatch_size is unset", {.min = 1, .max = 16384}),
         About(circular_repeat, "chunks of layers on each stage", kSize), optimizer,
         About(beta1, kRate), About(beta2, "of Adam", kRate), About(adam_epsilon, kNotNegative),
         update_rms_cap, About(clip_gradient_norm, "0: none", kNotNegative),
         About(weight_decay, "of every weight, also biases and norms", kNotNegative),
         About(learning_rate, kNotNegative), About(warmup_steps, kNotNegative), decay_end,
         About(decay_start, "the step after the warm-up unless set", kNotNegative), schedule,
         About(min_learning_rate_ratio, "of the peak, at decay_end", kShare),
         About(num_train_steps, kNotNegative), About(save_interval_steps, kNotNegative),
         About(save_max_to_keep, kNotNegative), About(eval_interval_steps, kNotNegative),
         About(summary_interval_steps, kNotNegative),
         About(target_log_pplx, "stops when an evaluation reaches it"))

  ExperimentConfig build() const override;
  void shrink() override;
  void validate() const override;

 protected:
  static constexpr int64_t kTrainSeed = 9876;  // Seed of the order of data. Pax: TRAINING_SEED.

  // The layers of Pax's configure_gpt3_task (paxml/tasks/lm/params/c4.py) and the optimizer with
  // them: GPT-3's (Brown et al., 2020), without a warm-up and rate.
  void use_gpt3_layers();
  void use_gpt3_optimizer();

  // Error if the mesh is not declared, or if the batch is not a whole number of sequences.
  int64_t batch_size() const;
  int64_t heads() const;

  virtual Template<BaseModel> model() const;
  virtual Template<SequenceLayer> attention() const;
  virtual Template<UnaryLayer> feed_forward() const;
  // As in praxis, LayerNorm stores its scale - 1 and RMSNorm its scale: to which of the two weight
  // decay pulls differs.
  Template<UnaryLayer> norm() const;
  virtual Learner::HParams learner() const;
  // The input of the split "train" or "validation". Evaluation reads each example of a file once.
  virtual Template<BaseInput> input(std::string_view split) const;
  TrainHParams train() const;

 private:
  int64_t mesh_size(size_t first_axis, size_t end_axis) const;
  TransformerLm::HParams language_model() const;
  Template<BaseOptimizer> optimizer_with(const Template<BaseSchedule>& schedule_tpl) const;
};

// With Adam: Pax's TransformerLmSpmdAdam and TransformerLmSpmdPipelineAdam
// (paxml/tasks/lm/params/c4.py).
struct TransformerLmAdamRecipe : TransformerLmRecipe {
  TransformerLmAdamRecipe() {
    num_layers = 32;
    model_dims = 1024;
    num_heads = 16;
    compute_dtype = DType::kF32;
    optimizer = LmOptimizer::kAdam;
    learning_rate = 1e-3;
    decay_end = 300'000;
  }
};

// The learning rate of MLPerf's GPT-3 benchmark as a function of the global batch: steps are given
// for batches of 1536 sequences and scaled so that the numbers of sequences stay. Pax:
// set_adam_and_learning_rate_schedule in paxml/tasks/lm/params/c4.py.
struct MlperfGpt3Rule {
  double learning_rate = 0.0;  // At the end of the warm-up.
  int64_t warmup_steps = 0;
  int64_t decay_end = 0;  // End of the cosine, in steps from the start of the run.
};

// Error for batches of less than 1 or more than 8192 sequences, for which there is no rule.
MlperfGpt3Rule mlperf_gpt3_rule(int64_t global_batch_size);

}  // namespace tessera
