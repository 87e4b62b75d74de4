// SPDX-License-Identifier: Apache-2.0
// The c4 recipes from the command line: listed, described, planned without devices, and trained at
// the size of the smoke variant.
#include <fstream>

#include "core/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

std::string text_for_training() {
  std::string text;
  for (int i = 0; i < 600; ++i)
    text += i % 3 == 0 ? "the quick brown fox jumps over the lazy dog.\n"
                       : "pack my box with five dozen liquor jugs.\n";
  return text;
}

TEST_CASE("c4 experiments are listed, and described with Pax's defaults") {
  const TemporaryDirectory directory;
  REQUIRE_THAT(run_program(directory.path(), "runexp", {"--list"}).output,
               Catch::Contains("c4.Spmd1B ") && Catch::Contains("c4.Spmd1BSmoke "));
  const Ended described =
      successful(run_program(directory.path(), "runexp", {"--exp=c4.Spmd1B", "--describe"}));
  for (const std::string line :
       {"mesh.ici_mesh_shape = [1, 4, 1]", "input.global_batch_size = 128",
        "position_emb_tpl = PositionalEmbedding", "stacked_transformer_tpl = Repeated",
        "attention_tpl.combine_qkv = true", "attention_tpl.use_per_dim_scale = true",
        "attention_tpl.logit_cap = 50.0", "loss.soft_cap = 30.0", "scale_sqrt_depth = true",
        "norm_tpl.direct_scale = false", "task.learner.clip_gradient_norm_to_value = 5.0",
        "optimizer_tpl.clip_threshold = 1.0", "optimizer_tpl.weight_decay = 0.001",
        "schedule_tpl.decay_end = 300000", "remat_policy = \"save_nothing\"",
        "save_max_to_keep = 10"})
    REQUIRE_THAT(described.output, Catch::Contains(line));
  REQUIRE_THAT(
      run_program(directory.path(), "runexp", {"--exp=c4.Spmd1B", "--diff=c4.Spmd1BSmoke"}).output,
      Catch::Contains("task.model.lm_tpl.num_layers: 13 -> 2"));
}

TEST_CASE("c4.Spmd1B is planned for its four devices without data or devices") {
  const TemporaryDirectory directory;
  const Ended got =
      successful(run_program(directory.path(), "runexp",
                             {"--exp=c4.Spmd1B", "--mode=plan", "--set",
                              "flat_tokens_path=" + (directory / "missing.h5").string(),
                              "--job_log_dir=" + (directory / "run").string()}));
  REQUIRE_THAT(got.output, Catch::Contains("1104619904"));
  REQUIRE_THAT(got.output, Catch::Contains("replica=1 data=4 mdl=1"));
}

TEST_CASE("percore_batch_size needs a declared mesh") {
  const TemporaryDirectory directory;
  const Ended got =
      with_code(2, run_program(directory.path(), "runexp",
                               {"--exp=c4.Spmd1B", "--describe", "--set", "ici_mesh_shape=[]"}));
  REQUIRE_THAT(got.output,
               Catch::Contains("percore_batch_size=32 is per device of a declared mesh, but "
                               "ici_mesh_shape is empty; set it, or global_batch_size"));
}

TEST_CASE("c4.Spmd1BSmoke learns from synthetic data and from a flat-tokens file") {
  const TemporaryDirectory directory;
  write_bytes(directory / "text.txt", text_for_training());
  const std::string tokens = (directory / "tokens.h5").string();
  successful(run_program(directory.path(), "flat_tokens",
                         {"build", "--output=" + tokens, (directory / "text.txt").string()}));
  const auto train = [&](const std::string& name, const std::vector<std::string>& settings) {
    successful(run_program(directory.path(), "runexp",
                           {"--exp=Spmd1BSmoke", "--job_log_dir=" + (directory / name).string()},
                           settings));
    const std::vector<std::string> losses = values_of(directory / name, "loss");
    REQUIRE(losses.size() == 60);
    REQUIRE(std::stod(losses.back()) < 0.75 * std::stod(losses.front()));
    REQUIRE(!values_of(directory / name, "eval/validation/log_pplx").empty());
  };
  train("synthetic", {"num_train_steps=60"});
  train("tokens", {"num_train_steps=60", "data=flat_tokens", "flat_tokens_path=" + tokens});
}

TEST_CASE("c4.Spmd1BSmoke takes the same steps on one, four and eight devices") {
  const TemporaryDirectory directory;
  const auto losses = [&](const std::string& name, const std::string& mesh) {
    const int64_t devices = mesh == "[1,1,1]" ? 1 : mesh == "[1,4,1]" ? 4 : 8;
    const Ended got =
        successful(run_program(directory.path(), "runexp",
                               {"--exp=Spmd1BSmoke", "--job_log_dir=" + (directory / name).string(),
                                "--devices=" + std::to_string(devices)},
                               {"ici_mesh_shape=" + mesh, "num_train_steps=5", "compute_dtype=f32",
                                "task.train.eval_interval_steps=0", "save_interval_steps=5"}));
    REQUIRE_THAT(got.output, !Catch::Contains("warning"));
    return values_of(directory / name, "loss");
  };
  const std::vector<std::string> one = losses("one", "[1,1,1]");
  REQUIRE(one.size() == 5);
  for (const std::string mesh : {"[1,4,1]", "[1,4,2]"}) {
    const std::vector<std::string> many = losses(mesh, mesh);
    REQUIRE(many.size() == one.size());
    // Sums in another order: f32 rounding, amplified by a few steps.
    for (size_t i = 0; i < one.size(); ++i)
      REQUIRE(std::stod(many[i]) == Approx(std::stod(one[i])).epsilon(1e-4));
  }
}

}  // namespace
}  // namespace tessera
