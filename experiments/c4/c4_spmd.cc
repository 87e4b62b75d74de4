// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=c4.Spmd1B --smoke
// Pax's c4 recipes (paxml/tasks/lm/params/c4.py): those without GPT-3, then those of GPT-3.
#include "plugins/registry.h"
#include "tasks/recipes/c4_recipe.h"

namespace tessera {
namespace {

REGISTER_EXPERIMENT(c4, Spmd, C4Recipe,
                    "Pax's C4SpmdAdam: 1.3B weights, unrolled, in f32; 1×4×2 devices") {}

REGISTER_EXPERIMENT(c4, SpmdPipeline, C4Recipe,
                    "Pax's C4SpmdPipelineAdam: 1.3B weights in 2 stages, in f32; 2×1×2×2 devices") {
  use_pipeline = true;
  microbatch_size = 2;
  ici_mesh_shape = {2, 1, 2, 2};
}

// The common knobs of the sizes below.
struct RepeatedC4 : C4Recipe {
  RepeatedC4() {
    vocab_size = 32000;
    compute_dtype = DType::kBF16;
    use_repeated_layer = true;
    remat_policy = "save_nothing";
    summary_interval_steps = 10;
  }
};

// 1.10 billion weights, fully sharded over four devices.
REGISTER_EXPERIMENT(
    c4, Spmd1B, RepeatedC4,
    "Pax's C4Spmd1BAdam4Replicas: 1.10B weights on 4 devices; --set flat_tokens_path=FILE") {
  num_layers = 13;
  model_dims = 2560;
  num_heads = 20;
  percore_batch_size = 32;
  ici_mesh_shape = {1, 4, 1};
}

REGISTER_EXPERIMENT(c4, Spmd1BLimitSteps, Spmd1B,
                    "Pax's C4Spmd1BAdam4ReplicasLimitSteps: c4.Spmd1B for 15000 steps") {
  num_train_steps = 15'000;
}

// Every axis is divisible by eight. The mesh takes all available devices; the batch is fixed.
REGISTER_EXPERIMENT(
    c4, Spmd1BSmoke, Spmd1B,
    "c4.Spmd1B with 2 narrow layers and 200 steps, on synthetic data or --set data=flat_tokens") {
  num_layers = 2;
  model_dims = 64;
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

REGISTER_EXPERIMENT(c4, Spmd2B, RepeatedC4,
                    "Pax's C4Spmd2BAdam4Replicas: 2.14B weights; 1×4×1 devices") {
  num_layers = 18;
  model_dims = 3072;
  num_heads = 24;
  percore_batch_size = 32;
  ici_mesh_shape = {1, 4, 1};
}

REGISTER_EXPERIMENT(c4, Spmd16B, RepeatedC4,
                    "Pax's C4Spmd16BAdam32Replicas: 16.5B weights; 1×16×2 devices") {
  num_layers = 36;
  model_dims = 6144;
  num_heads = 48;
  percore_batch_size = 16;
  ici_mesh_shape = {1, 16, 2};
}

REGISTER_EXPERIMENT(c4, Spmd32B, RepeatedC4,
                    "Pax's C4Spmd32BAdam64Replicas: 32.5B weights; 1×16×4 devices") {
  num_layers = 40;
  model_dims = 8192;
  num_heads = 64;
  percore_batch_size = 8;
  ici_mesh_shape = {1, 16, 4};
}

// The model on generated sequences.
REGISTER_EXPERIMENT(c4, LmCloudSpmd, TransformerLmAdamRecipe,
                    "Pax's LmCloudSpmdAdam: 0.17B weights in f32, synthetic data; 1×4×2 devices") {
  num_layers = 2;
  model_dims = 2048;
  num_heads = 16;
  percore_batch_size = 16;
  activation_tpl = GELU::HParams{.approximate = true};
  ici_mesh_shape = {1, 4, 2};
}

REGISTER_EXPERIMENT(c4, LmCloudSpmdLimitSteps, LmCloudSpmd,
                    "Pax's LmCloudSpmdAdamLimitSteps: c4.LmCloudSpmd for 4000 steps") {
  num_train_steps = 4000;
}

// ./runexp --exp=c4.SpmdGpt3OrgHPBS1p5k --smoke
// Pax's GPT-3 recipes (paxml/tasks/lm/params/c4.py): those of MLPerf's benchmark and smaller ones.
// "BS2k" is the global batch. Training ends at a validation log_pplx of 2.69, MLPerf's target.

// Pax's 51200, a multiple of 128, rounded up for 12 or 24 devices; XLA pads there by itself.
constexpr int64_t kVocabularyFor24 = 51'216;
constexpr int64_t kVocabulary = 51'200;

REGISTER_EXPERIMENT(
    c4, SpmdGpt3OrgHPBS1p5k, C4Gpt3Recipe,
    "Pax's C4SpmdGpt3AdamOrgHPBS1p5k1536Replicas: GPT-3 175B in f32; 1×64×24 devices") {
  vocab_size = kVocabularyFor24;
  compute_dtype = DType::kF32;
  percore_batch_size = 1;
  ici_mesh_shape = {1, 64, 24};
  save_max_to_keep = 100;
  eval_interval_steps = 25;
  summary_interval_steps = 1;
}

REGISTER_EXPERIMENT(
    c4, SpmdGpt3L16, C4Gpt3Recipe,
    "Pax's C4SpmdGpt3L16AdamOrgHP: 16 of GPT-3's layers, 30B weights; 1×16×4 devices") {
  num_layers = 16;
  vocab_size = 50'260;  // 50257, rounded up for mdl=4.
  compute_dtype = DType::kBF16;
  percore_batch_size = 3;
  ici_mesh_shape = {1, 16, 4};
  eval_interval_steps = 25'000;
}

REGISTER_EXPERIMENT(
    c4, SpmdPipelineGpt3OrgHPBS1p5k, C4Gpt3Recipe,
    "Pax's C4SpmdPipelineGpt3AdamOrgHPBS1p5k768Replicas: GPT-3 175B, 8 stages; 8×1×8×12 devices") {
  use_pipeline = true;
  microbatch_size = 8;
  vocab_size = kVocabularyFor24;
  compute_dtype = DType::kF32;
  percore_batch_size = 2;
  ici_mesh_shape = {8, 1, 8, 12};
  save_max_to_keep = 100;
  eval_interval_steps = 25;
  summary_interval_steps = 1;
  save_interval_steps = 50;
}

// Pax's C4SpmdPipelineGpt3AdamMLPerfHP. Checkpoints at every second evaluation.
struct Gpt3MLPerf : C4Gpt3Recipe {
  Gpt3MLPerf() {
    use_pipeline = true;
    use_mlperf_rule();
    vocab_size = kVocabulary;
    compute_dtype = DType::kF32;
    save_max_to_keep = 100;
    summary_interval_steps = 1;
  }

 protected:
  void evaluate_every(int64_t steps) {
    eval_interval_steps = steps;
    save_interval_steps = 2 * steps;
  }
};

REGISTER_EXPERIMENT(
    c4, SpmdPipelineGpt3MLPerfBS1p5k, Gpt3MLPerf,
    "Pax's C4SpmdPipelineGpt3AdamMLPerfHPBS1p5k768Replicas: GPT-3 175B; 8×1×8×12 devices") {
  vocab_size = kVocabularyFor24;
  percore_batch_size = 2;
  microbatch_size = 8;
  ici_mesh_shape = {8, 1, 8, 12};
  evaluate_every(16);
}

REGISTER_EXPERIMENT(
    c4, SpmdPipelineGpt3MLPerfBS2k, Gpt3MLPerf,
    "Pax's C4SpmdPipelineGpt3AdamMLPerfHPBS2k512Replicas: GPT-3 175B; 8×1×8×8 devices") {
  percore_batch_size = 4;
  microbatch_size = 8;
  ici_mesh_shape = {8, 1, 8, 8};
  evaluate_every(12);
}

REGISTER_EXPERIMENT(
    c4, SpmdPipelineGpt3MLPerfBS3k, Gpt3MLPerf,
    "Pax's C4SpmdPipelineGpt3AdamMLPerfHPBS3k768Replicas: GPT-3 175B; 4×1×16×12 devices") {
  vocab_size = kVocabularyFor24;
  percore_batch_size = 4;
  microbatch_size = 16;
  ici_mesh_shape = {4, 1, 16, 12};
  evaluate_every(8);
}

REGISTER_EXPERIMENT(
    c4, SpmdPipelineGpt3MLPerfBS4k, Gpt3MLPerf,
    "Pax's C4SpmdPipelineGpt3AdamMLPerfHPBS4k1024Replicas: GPT-3 175B; 8×1×8×16 devices") {
  percore_batch_size = 4;
  microbatch_size = 8;
  ici_mesh_shape = {8, 1, 8, 16};
  evaluate_every(6);
}

REGISTER_EXPERIMENT(
    c4, SpmdPipelineGpt3MLPerfBS8k, Gpt3MLPerf,
    "Pax's C4SpmdPipelineGpt3AdamMLPerfHPBS8k1024Replicas: GPT-3 175B; 4×1×16×16 devices") {
  percore_batch_size = 8;
  microbatch_size = 16;
  ici_mesh_shape = {4, 1, 16, 16};
  evaluate_every(3);
}

REGISTER_EXPERIMENT(
    c4, SpmdPipelineGpt3Small, C4Gpt3Recipe,
    "Pax's C4SpmdPipelineGpt3SmallAdam8Replicas: 2.9B weights in 2 stages; 2×1×2×2 devices") {
  use_pipeline = true;
  num_layers = 24;
  model_dims = 3072;
  num_heads = 24;
  vocab_size = kVocabulary;
  compute_dtype = DType::kBF16;
  percore_batch_size = 64;
  microbatch_size = 8;
  ici_mesh_shape = {2, 1, 2, 2};
  learning_rate = 2e-4;
  save_max_to_keep = 1000;
  eval_interval_steps = 10;
  summary_interval_steps = 5;
  save_interval_steps = 200;
}

}  // namespace
}  // namespace tessera
