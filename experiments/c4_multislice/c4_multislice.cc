// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=c4_multislice.Spmd22BMaxText --smoke
// Pax's recipes on several slices of a TPU, with replicas over the slow links
// (paxml/tasks/lm/params/c4_multislice.py). "2xv4_128" is two slices of 64 devices each.
#include "plugins/registry.h"
#include "tasks/recipes/c4_recipe.h"

namespace tessera {
namespace {

constexpr int64_t kLimitedSteps = 300;

REGISTER_EXPERIMENT(c4_multislice, Spmd22BMaxText, C4Recipe,
                    "Pax's C4Spmd22BAdamMaxText: 21.9B weights; 1×4×2 devices") {
  num_layers = 48;
  model_dims = 6144;
  num_heads = 24;
  percore_batch_size = 16;
  vocab_size = 32768;
  compute_dtype = DType::kBF16;
  use_repeated_layer = true;
  summary_interval_steps = 10;
  remat_policy = "save_nothing";
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B1xv4_128, Spmd22BMaxText,
                    "Pax's C4Spmd22BAdam1xv4_128: 21.9B weights; 1×64×1 devices") {
  ici_mesh_shape = {1, 64, 1};
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B2xv4_128, Spmd22B1xv4_128,
                    "Pax's C4Spmd22BAdam2xv4_128: 21.9B weights; 2 slices of 1×64×1 devices") {
  dcn_mesh_shape = {2, 1, 1};
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B4xv4_128, Spmd22B1xv4_128,
                    "Pax's C4Spmd22BAdam4xv4_128: 21.9B weights; 4 slices of 1×64×1 devices") {
  dcn_mesh_shape = {4, 1, 1};
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B1xv4_128LimitSteps, Spmd22B1xv4_128,
                    "Pax's C4Spmd22BAdam1xv4_128LimitSteps: Spmd22B1xv4_128 for 300 steps") {
  num_train_steps = kLimitedSteps;
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B2xv4_128LimitSteps, Spmd22B2xv4_128,
                    "Pax's C4Spmd22BAdam2xv4_128LimitSteps: Spmd22B2xv4_128 for 300 steps") {
  num_train_steps = kLimitedSteps;
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B4xv4_128LimitSteps, Spmd22B4xv4_128,
                    "Pax's C4Spmd22BAdam4xv4_128LimitSteps: Spmd22B4xv4_128 for 300 steps") {
  num_train_steps = kLimitedSteps;
}

// Fewer and wider layers: 24.8 billion weights.
REGISTER_EXPERIMENT(c4_multislice, Spmd22B1xv4_384, Spmd22BMaxText,
                    "Pax's C4Spmd22BAdam1xv4_384: 24.8B weights; 1×192×1 devices") {
  num_layers = 24;
  model_dims = 9216;
  percore_batch_size = 10;
  ici_mesh_shape = {1, 192, 1};
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B2xv4_384, Spmd22B1xv4_384,
                    "Pax's C4Spmd22BAdam2xv4_384: 24.8B weights; 2 slices of 1×192×1 devices") {
  dcn_mesh_shape = {2, 1, 1};
}

// 0.87 billion weights, in spite of Pax's name.
REGISTER_EXPERIMENT(c4_multislice, Spmd22B1xv4_8, Spmd22BMaxText,
                    "Pax's C4Spmd22BAdam1xv4_8: 0.87B weights; 1×4×1 devices") {
  num_layers = 16;
  model_dims = 2048;
  num_heads = 8;
  ici_mesh_shape = {1, 4, 1};
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B2xv4_8, Spmd22B1xv4_8,
                    "Pax's C4Spmd22BAdam2xv4_8: 0.87B weights; 2 slices of 1×4×1 devices") {
  dcn_mesh_shape = {2, 1, 1};
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B4xv4_8, Spmd22B1xv4_8,
                    "Pax's C4Spmd22BAdam4xv4_8: 0.87B weights; 4 slices of 1×4×1 devices") {
  dcn_mesh_shape = {4, 1, 1};
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B1xv4_8LimitSteps, Spmd22B1xv4_8,
                    "Pax's C4Spmd22BAdam1xv4_8LimitSteps: Spmd22B1xv4_8 for 300 steps") {
  num_train_steps = kLimitedSteps;
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B2xv4_8LimitSteps, Spmd22B2xv4_8,
                    "Pax's C4Spmd22BAdam2xv4_8LimitSteps: Spmd22B2xv4_8 for 300 steps") {
  num_train_steps = kLimitedSteps;
}

REGISTER_EXPERIMENT(c4_multislice, Spmd22B4xv4_8LimitSteps, Spmd22B4xv4_8,
                    "Pax's C4Spmd22BAdam4xv4_8LimitSteps: Spmd22B4xv4_8 for 300 steps") {
  num_train_steps = kLimitedSteps;
}

REGISTER_EXPERIMENT(c4_multislice, Spmd32B1xv5_256, Spmd22BMaxText,
                    "Pax's C4Spmd32BAdam1xv5_256: 32.5B weights; 1×128×1 devices") {
  num_layers = 40;
  model_dims = 8192;
  num_heads = 32;
  percore_batch_size = 2;
  seq_len = 2048;
  ici_mesh_shape = {1, 128, 1};
}

REGISTER_EXPERIMENT(c4_multislice, Spmd32B2xv5_256, Spmd32B1xv5_256,
                    "Pax's C4Spmd32BAdam2xv5_256: 32.5B weights; 2 slices of 1×128×1 devices") {
  dcn_mesh_shape = {2, 1, 1};
}

REGISTER_EXPERIMENT(
    c4_multislice, SpmdGpt3DataParallel2x16x16, C4Gpt3Recipe,
    "Pax's C4SpmdGpt3AdamDataParallel2x16x16: GPT-3 175B; 2 slices of 1×16×16 devices") {
  vocab_size = 50'272;  // 50257, rounded up for mdl=16.
  compute_dtype = DType::kBF16;
  percore_batch_size = 0.5;
  ici_mesh_shape = {1, 16, 16};
  dcn_mesh_shape = {2, 1, 1};
  num_train_steps = 100;
  save_interval_steps = 2000;
  save_max_to_keep = 20;
}

}  // namespace
}  // namespace tessera
