// SPDX-License-Identifier: Apache-2.0
// Tests runexp's messages about invalid numbers and names in a configuration: errors before
// anything is built, and warnings about a run that is probably not intended.
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

Ended run(const fs::path& directory, const std::vector<std::string>& sets,
          std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--exp=quickstart.SourceLm", "--smoke",
                                       "--job_log_dir=" + (directory / "run").string()});
  for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
  return run_program(directory, "runexp", arguments);
}

// The message for these settings; --describe makes the whole configuration and builds nothing.
std::string refusal(const std::vector<std::string>& sets) {
  const TemporaryDirectory directory;
  return with_code(2, run(directory.path(), sets, {"--describe"})).output;
}

TEST_CASE("numbers out of the range of their field are refused, in knobs and in any layer") {
  const std::string lm = "task.model.lm_tpl.", train = "task.train.";
  REQUIRE_THAT(refusal({"min_learning_rate_ratio=2"}),
               Contains("quickstart.SourceLm: min_learning_rate_ratio is 2.0, expected 0 to 1 (of "
                        "the peak, at the end)"));
  REQUIRE_THAT(refusal({lm + "softmax_tpl.loss.label_smoothing=1.5"}),
               Contains("label_smoothing is 1.5, expected at least 0 and below 1"));
  REQUIRE_THAT(refusal({"eval.follow_poll_seconds=0", "num_layers=1"}),
               Contains("eval.follow_poll_seconds is 0.0, expected above 0"));
  const std::vector<std::vector<std::string>> all = {
      {lm + "final_ln_tpl.epsilon=-1"},
      {lm + "final_ln_tpl.epsilon=1e308"},
      {lm + "softmax_tpl.loss.z_loss=-1"},
      {lm + "params_init={kind = \"gaussian\", scale = inf}"},
      {lm + "stacked_transformer_tpl.block_tpl.attention_tpl.query_scale=nan"},
      {lm + "stacked_transformer_tpl.block_tpl.attention_tpl.logit_cap=-1"},
      {lm + "stacked_transformer_tpl.block_tpl.attention_tpl.rotary_tpl.min_timescale=0"},
      {lm +
       "stacked_transformer_tpl.block_tpl.ffn_tpl={type = \"MoeFeedForward\", num_experts = 4, "
       "router_tpl = {type = \"TopKRouter\", load_balance_weight = inf}}"},
      {"num_layers=1000000"},
      {train + "num_microbatches=10000000"},
      {"seq_len=4294967296"}};
  for (const auto& sets : all) REQUIRE_THAT(refusal(sets), Contains(", expected "));
}

TEST_CASE("a path that is not one, and a name that the model does not save, are refused") {
  REQUIRE_THAT(refusal({"num_layers.=7"}), Contains("did you mean 'num_layers'?"));
  REQUIRE_THAT(refusal({"[task.train.seed=7"}), Contains("did you mean 'task.train.seed'?"));
  const TemporaryDirectory directory;
  const Ended ended =
      with_code(2, run(directory.path(), {"task.train.remat_policy=fnf1"}, {"--mode=plan"}));
  REQUIRE_THAT(ended.output, Contains("remat_policy=fnf1: the model saves no value 'fnf1'; did you "
                                      "mean 'ffn1'?"));
}

TEST_CASE("a warm-up longer than the run, and a longer schedule on resuming, are mentioned") {
  const TemporaryDirectory directory;
  const auto output = [&](const std::vector<std::string>& sets) {
    return successful(run(directory.path(), sets, {"--set", "task.train.eval_loop_num_batches=1"}))
        .output;
  };
  const std::string warning = "warning: the warm-up of the learning rate takes";
  REQUIRE_THAT(output({"num_train_steps=6", "warmup_steps=2"}), !Contains(warning));
  // A cosine from 0.002 at step 2 to a tenth: at step 6 it was at its end, and is now half way.
  REQUIRE_THAT(
      output({"num_train_steps=10", "warmup_steps=2"}),
      Contains("num_train_steps: 6 -> 10; the learning rate of step 6 is now 0.0011, it was "
               "0.0002 (a schedule without an end of its own ends at num_train_steps)"));
  fs::remove_all(directory.path() / "run");
  REQUIRE_THAT(output({"num_train_steps=6", "warmup_steps=6"}),
               Contains(warning + " 6 steps, but "));
}

}  // namespace
}  // namespace tessera
