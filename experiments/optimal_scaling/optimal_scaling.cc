// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=optimal_scaling.OptimalScaling2x2x1 --smoke
// Pax's models with a Chinchilla-like ratio of width to depth, 128 times the number of layers
// (paxml/tasks/lm/params/optimal_scaling.py). They are named after the TPU slices.
#include "experiments/lm_cloud/lm_cloud_spmd.h"
#include "plugins/registry.h"

namespace tessera {
namespace {

struct OptimalScalingRecipe : LmCloudSpmdRecipe {
  OptimalScalingRecipe() { remat_policy = "save_dot_with_no_batch_dims"; }
};

REGISTER_EXPERIMENT(optimal_scaling, OptimalScaling2x2x1, OptimalScalingRecipe,
                    "Pax's OptimalScaling2x2x1: 28 layers, 4.4B weights; 1×4×1 devices") {
  use({.layers = 28, .dims = 128 * 28, .percore_batch_size = 16, .ici_mesh_shape = {1, 4, 1}});
}

REGISTER_EXPERIMENT(optimal_scaling, OptimalScaling2x2x2, OptimalScalingRecipe,
                    "Pax's OptimalScaling2x2x2: 32 layers, 6.6B weights; 1×8×1 devices") {
  use({.layers = 32, .dims = 128 * 32, .percore_batch_size = 8, .ici_mesh_shape = {1, 8, 1}});
}

REGISTER_EXPERIMENT(optimal_scaling, OptimalScaling2x2x4, OptimalScalingRecipe,
                    "Pax's OptimalScaling2x2x4: 36 layers, 9.3B weights; 1×16×1 devices") {
  use({.layers = 36, .dims = 128 * 36, .percore_batch_size = 8, .ici_mesh_shape = {1, 16, 1}});
}

REGISTER_EXPERIMENT(optimal_scaling, OptimalScaling2x4x4, OptimalScalingRecipe,
                    "Pax's OptimalScaling2x4x4: 40 layers, 12.7B weights; 1×32×1 devices") {
  use({.layers = 40, .dims = 128 * 40, .percore_batch_size = 8, .ici_mesh_shape = {1, 32, 1}});
}

REGISTER_EXPERIMENT(optimal_scaling, OptimalScaling4x4x4, OptimalScalingRecipe,
                    "Pax's OptimalScaling4x4x4: 45 layers, 18.1B weights; 1×64×1 devices") {
  use({.layers = 45, .dims = 128 * 45, .percore_batch_size = 8, .ici_mesh_shape = {1, 64, 1}});
}

REGISTER_EXPERIMENT(optimal_scaling, OptimalScaling4x4x8, OptimalScalingRecipe,
                    "Pax's OptimalScaling4x4x8: 50 layers, 24.8B weights; 1×128×1 devices") {
  use({.layers = 50, .dims = 128 * 50, .percore_batch_size = 4, .ici_mesh_shape = {1, 128, 1}});
}

REGISTER_EXPERIMENT(optimal_scaling, OptimalScaling4x8x8, OptimalScalingRecipe,
                    "Pax's OptimalScaling4x8x8: 56 layers, 34.8B weights; 1×64×4 devices") {
  use({.layers = 56, .dims = 128 * 56, .percore_batch_size = 2, .ici_mesh_shape = {1, 64, 4}});
}

REGISTER_EXPERIMENT(optimal_scaling, OptimalScaling4x8x16, OptimalScalingRecipe,
                    "Pax's OptimalScaling4x8x16: 64 layers, 51.8B weights; 1×128×4 devices") {
  use({.layers = 64, .dims = 128 * 64, .percore_batch_size = 2, .ici_mesh_shape = {1, 128, 4}});
}

REGISTER_EXPERIMENT(optimal_scaling, OptimalScaling4x16x16, OptimalScalingRecipe,
                    "Pax's OptimalScaling4x16x16: 64 layers, 51.8B weights; 1×256×4 devices") {
  use({.layers = 64, .dims = 128 * 64, .percore_batch_size = 1, .ici_mesh_shape = {1, 256, 4}});
}

REGISTER_EXPERIMENT(optimal_scaling, OptimalScaling4x16x32, OptimalScalingRecipe,
                    "Pax's OptimalScaling4x16x32: 64 layers, 51.8B weights; 1×512×4 devices") {
  use({.layers = 64, .dims = 128 * 64, .percore_batch_size = 1, .ici_mesh_shape = {1, 512, 4}});
}

REGISTER_EXPERIMENT(optimal_scaling, OptimalScaling4x24x32, OptimalScalingRecipe,
                    "Pax's OptimalScaling4x24x32: 64 layers, 51.8B weights; 3×256×4 devices") {
  // Pax: {1, 768, 4}, but 768 does not divide model_dims.
  use({.layers = 64, .dims = 128 * 64, .percore_batch_size = 1, .ici_mesh_shape = {3, 256, 4}});
}

}  // namespace
}  // namespace tessera
