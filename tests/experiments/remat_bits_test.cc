// SPDX-License-Identifier: Apache-2.0
// No remat policy changes a bit of losses, gradients or weights in bf16, on one device and on
// meshes: a value is rounded where it is made, whether it is saved, recomputed or stays in a loop.
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/spmd_trial.h"

namespace tessera {
namespace {

using enum TrialModel;

const TopKRouter::HParams kDropless{.load_balance_weight = 0.1, .z_loss_weight = 0.01};

void require_same_bits(SpmdCase trial, const std::vector<std::string>& policies) {
  trial.compute = DType::kBF16;
  trial.steps = 2;
  const SpmdRun saved = run_spmd(trial);
  for (const std::string& policy : policies) {
    trial.remat = policy;
    INFO(trial.text());
    const SpmdRun run = run_spmd(trial);
    REQUIRE(run.losses == saved.losses);
    REQUIRE(run.norms == saved.norms);
    REQUIRE(same_bits(run.gradients, saved.gradients));
    REQUIRE(same_bits(run.trained, saved.trained));
  }
}

TEST_CASE("remat changes no bit in bf16") {
  for (const SpmdCase& trial : std::vector<SpmdCase>{
           {.model = kLlama, .repeated = true, .dropout = true},
           {.model = kLlama, .dropout = true, .microbatches = 2, .clip_norm = 0.5},
           {.model = kLlama, .router = kDropless, .repeated = true, .dropout = true},
           {.model = kPax, .dropout = true, .chunk_tokens = 50}})
    require_same_bits(trial, {"save_nothing", "query_proj,ffn1", "save_dot_only"});
}

TEST_CASE("remat changes no bit in bf16 on a mesh") {
  const TrialRules stages{"stages", "layers -> stage", "batch -> (replica, data)"};
  for (const SpmdCase& trial : std::vector<SpmdCase>{
           {.model = kLlama, .ici = {1, 2, 1}, .strategy = "fsdp", .dropout = true},
           {.model = kLlama,
           .ici = {1, 2, 2},
           .strategy = "tensor",
           .repeated = true,
           .dropout = true},
           {.model = kLlama,
           .ici = {1, 2, 1},
           .own_rules = stages,
           .repeated = true,
           .dropout = true,
           .microbatches = 4,
           .layers = 4,
           .stages = 2}})
    require_same_bits(trial, {"save_nothing", "query_proj,ffn1"});
}

TEST_CASE("no policy changes a bit in bf16, with each strategy", "[full][levels]") {
  const std::vector<std::string> policies = {
      "save_nothing",
      "query_proj,ffn1",
      "ffn2",
      "save_dot_only",
      "save_dot_with_no_batch_dims",
      "save_qkv_out_proj_separate",
      "save_context_and_out_proj",
      "save_dot_except_logits",
  };
  for (const TrialModel model : {kGpt2, kLlama, kPax})
    for (const bool repeated : {false, true}) {
      SpmdCase trial{.model = model, .repeated = repeated, .dropout = true};
      require_same_bits(trial, policies);
      trial.router = kDropless;
      require_same_bits(trial, policies);
      trial.router = {};
      trial.ici = {1, 2, 2};
      for (const std::string name : {"replica", "fsdp", "tensor", "sequence"}) {
        trial.strategy = name;
        require_same_bits(trial, policies);
      }
    }
}

}  // namespace
}  // namespace tessera
