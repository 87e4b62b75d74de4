// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=c4.Spmd1B --smoke
// Pax's c4 recipes without GPT-3 (paxml/tasks/lm/params/c4.py).
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

}  // namespace
}  // namespace tessera
