// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=nvidia.MoELarge --smoke
// Pax's MoELarge, GLaM64B64EProxy, Grok and its proxies (paxml/tasks/lm/params/nvidia.py), and the
// model that GLaM64B64EProxy approximates. Meshes are replica × data × data_expert × mdl, after the
// stages if there are any. Pax's axis `data` is data × data_expert here where it is larger than the
// number of experts.
#include "experiments/nvidia/moe_recipe.h"
#include "plugins/registry.h"
#include "tasks/task/learner/optimizers.h"
#include "tasks/task/learner/schedules.h"

namespace tessera {
namespace {

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
