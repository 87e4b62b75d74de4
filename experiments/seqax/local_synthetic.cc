// SPDX-License-Identifier: Apache-2.0
// seqax.LocalSynthetic: seqax's local_test_synthetic, 2.4 million weights on a mesh of 4×2.
#include "experiments/seqax/model.h"
#include "experiments/seqax/synthetic_tasks.h"
#include "plugins/registry.h"
#include "tasks/learner/schedules.h"
#include "tasks/single_task.h"

namespace tessera {

struct LocalSynthetic : Experiment {
  using Base = Experiment;
  static constexpr std::string_view kSummary =
      "seqax's model with explicit layouts, on its synthetic tasks; mesh 4×2, or any";
  LocalSynthetic() { ici_mesh_shape = {1, 4, 2}; }  // seqax's d and t are data and mdl.
  int64_t num_layers = 2;
  int64_t model_dims = 256;
  int64_t seq_len = 64;
  int64_t global_batch_size = 64;
  int64_t num_train_steps = 50;
  int64_t steps_for_learning_rate = 100;
  int64_t warmup_steps = 10;
  double learning_rate = 3e-5;
  DType compute_dtype = DType::kBF16;
  FIELDS(num_layers, model_dims, seq_len, global_batch_size, num_train_steps,
         steps_for_learning_rate, warmup_steps, learning_rate, compute_dtype)

  ExperimentConfig build() const override {
    const SeqaxModel::HParams model{.num_layers = num_layers,
                                    .model_dims = model_dims,
                                    .num_heads = 4,  // Two queries for each key.
                                    .num_kv_heads = 2,
                                    .dims_per_head = 32,
                                    .hidden_dims = 1024,
                                    .vocab_size = 1280,
                                    .rope_max_timescale = 256.0};
    const LinearRampupCosineDecay::HParams schedule{
        .warmup_steps = warmup_steps, .decay_end = steps_for_learning_rate, .min_ratio = 0.1};
    const auto tasks = [&](const std::string& split) {
      return SeqaxTasks::HParams{.split = split,
                                 .global_batch_size = global_batch_size,
                                 .seq_len = seq_len,
                                 .shuffle = split == "train",
                                 .repeat = split == "train"};
    };
    return {.mesh = mesh(),
            // Rules for the batch only: the layouts are in the model.
            .rules = {.weights = "", .activations = "batch -> data"},
            .task =
                SingleTask::HParams{
                    .dtypes = DTypePolicy{.compute = compute_dtype},
                    .model = model,
                    .learner = {.optimizer_tpl = AdamW::HParams{.learning_rate = learning_rate,
                                                                .schedule_tpl = schedule,
                                                                .beta1 = 0.9,
                                                                .beta2 = 0.95,
                                                                .weight_decay = 0.1},
                                .clip_gradient_norm_to_value = 1.0},
                    .train = {.num_train_steps = num_train_steps,
                              .remat_policy = "q,k,v,attn_residual,ln2,gate_proj,up_proj",
                              .save_interval_steps = 10,
                              .eval_interval_steps = num_train_steps}},
            .input = tasks("train"),
            .eval_inputs = {{"validation", tasks("validation")}}};
  }
};
REGISTER_EXPERIMENT(seqax, LocalSynthetic)

}  // namespace tessera
