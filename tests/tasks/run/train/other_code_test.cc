// SPDX-License-Identifier: Apache-2.0
// Runs that resume with code that computes something else, and checkpoints that are read into
// another model.
#include "core/base/error.h"
#include "core/compile/computation.h"
#include "core/hparams/convert.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "layers/feed_forward/activations.h"
#include "tasks/run/train/loop_state.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

bool is_edited = false;  // The change of code: another activation.

}  // namespace

class Edited final : public Activation {
 public:
  struct HParams {
    using Instance = Edited;
    static constexpr std::string_view kName = "Edited";
    FIELDS()
  };
  explicit Edited(const HParams&) {}

 private:
  Tensor fprop(Tensor x) const override { return is_edited ? gelu(x) : relu(x); }
};
REGISTER_TEMPLATE(Activation, Edited);

namespace {

constexpr std::string_view kBlock = "task.model.lm_tpl.stacked_transformer_tpl.block_tpl.";

ExperimentConfig config_of(int64_t steps) {
  ExperimentConfig config = tiny_config(steps);
  set_path(config, std::string(kBlock) + "ffn_tpl.activation_tpl", "Edited");
  return config;
}

std::string error_of_run(const ExperimentConfig& config, const fs::path& run,
                         const RunWith& options) {
  return error_of([&] { run_tiny(config, run, options); });
}

TEST_CASE("a resume with code that computes another step is refused with its first line") {
  const TemporaryDirectory folder;
  const fs::path run = folder / "run";
  RunWith options;
  options.code = {.build = "1", .plugins = "mine.so 00ff", .revision = "abc"};
  is_edited = false;
  REQUIRE(run_tiny(config_of(2), run, options) == 0);
  REQUIRE_THAT(read_bytes(run / "metrics.jsonl"), Contains("\"build\": \"1\"") &&
                                                      Contains("\"plugins\": \"mine.so 00ff\"") &&
                                                      Contains("\"revision\": \"abc\""));
  const LoopState state = loop_state_of(CheckpointStore(run / "checkpoints").open(2).info());
  REQUIRE(state.code.plugins == "mine.so 00ff");
  REQUIRE(state.code.revision == "abc");
  REQUIRE(state.computation.size() > 100);

  is_edited = true;
  ExperimentConfig longer = config_of(4);
  SECTION("on the same mesh") {}
  SECTION("on another mesh") { options.devices = 2; }
  SECTION("with another configuration") {
    options.allow_config_change = true;
    task_of(longer).train.seed = 77;
    task_of(longer).train.num_microbatches = 2;
  }
  const std::string error = error_of_run(longer, run, options);
  REQUIRE_THAT(error, Contains("the first difference is gelu in lm.transformer.x_layers[0].ffn"));
  REQUIRE_THAT(error, Contains("other_code_test.cc:") && Contains("--allow_code_change"));
  REQUIRE_THAT(error, Contains("saved by build 1; plugins mine.so 00ff; revision abc"));
  options.allow_code_change = true;
  REQUIRE(run_tiny(longer, run, options) == 0);
  // The new code is that of the run now.
  options.allow_code_change = options.allow_config_change = false;
  task_of(longer).train.num_train_steps = 5;
  REQUIRE(run_tiny(longer, run, options) == 0);
}

TEST_CASE("code that computes the same step resumes on every mesh and with other settings") {
  const TemporaryDirectory folder;
  RunWith options;
  options.allow_config_change = true;
  is_edited = false;
  int64_t steps = 0;
  const auto resume = [&](int64_t devices, const std::string& set) {
    ExperimentConfig config = config_of(++steps);
    config.rules = strategy_rules(Strategy::kFullyShardedTensor);
    if (!set.empty()) set_path(config, set.substr(0, set.find('=')), set.substr(set.find('=') + 1));
    options.devices = devices;
    INFO(devices << " devices " << set);
    REQUIRE(run_tiny(config, folder.path(), options) == 0);
  };
  resume(1, "");
  resume(4, "");
  resume(4, "mesh.ici_mesh_shape=[1,2,2]");
  resume(2, "task.train.num_microbatches=4");
  resume(1, "task.train.remat_policy=save_nothing");
  resume(2, std::string(kBlock) + "attention_tpl.causal=false");
}

TEST_CASE("a checkpoint is not read into a model that lacks some of its weights") {
  const TemporaryDirectory folder;
  const fs::path run = folder / "run";
  ExperimentConfig config = tiny_config(2);
  set_path(config, "task.model.lm_tpl.num_layers", "2");
  REQUIRE(run_tiny(config, run) == 0);
  const std::string before = read_bytes(run / "hparams.toml");
  const auto refusal = [&](const ModeOptions& mode) {
    ExperimentConfig smaller = config;
    set_path(smaller, "task.model.lm_tpl.num_layers", "1");
    task_of(smaller).train.num_train_steps = 4;
    RunWith options;
    options.mode = mode;
    options.allow_config_change = true;
    return error_of_run(smaller, run, options);
  };
  for (const ModeOptions& mode : {ModeOptions(TrainOptions{}), ModeOptions(EvalOptions{}),
                                  ModeOptions(DecodeOptions{.prompt_ids = {"1 2"}})}) {
    INFO(mode.index());
    REQUIRE_THAT(refusal(mode), Contains("the checkpoint of another model: it has ") &&
                                    Contains("weights that this model does not have: "
                                             "lm.transformer.x_layers[1].") &&
                                    Contains("task.train.init_from"));
    REQUIRE(read_bytes(run / "hparams.toml") == before);
  }
}

}  // namespace
}  // namespace tessera
