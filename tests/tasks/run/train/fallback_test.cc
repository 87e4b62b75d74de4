// SPDX-License-Identifier: Apache-2.0
// Runs whose newest checkpoints are damaged: by default they stop and name what to remove. With
// --checkpoint=auto-fallback all processes resume from the newest intact checkpoint.
#include <functional>
#include <thread>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

using Catch::Contains;
using Steps = std::vector<int64_t>;
namespace fs = std::filesystem;

ExperimentConfig saving_config() {
  ExperimentConfig config = tiny_config(8);
  task_of(config).train.save_interval_steps = 2;
  task_of(config).train.save_max_to_keep = 0;
  return config;
}

RunWith falling_back() {
  RunWith options;
  options.mode = TrainOptions{.falls_back = true};
  return options;
}

Steps steps_of(const fs::path& run) { return CheckpointStore(run / "checkpoints").steps(); }

// Flips a bit in the middle of a shard file, inside an array.
void damage(const fs::path& run, int64_t step, const char* name = "host_00000.h5") {
  ByteFile file =
      ByteFile::open_to_write(CheckpointStore(run / "checkpoints").path_of(step) / name);
  const int64_t at = file.size() / 2;
  std::byte byte{};
  file.read_at(at, std::span(&byte, 1));
  byte ^= std::byte{4};
  file.write_at(at, std::span(&byte, 1));
}

std::string refusal(const fs::path& run, const RunWith& options = {}) {
  return error_of([&] { run_tiny(saving_config(), run, options); });
}

TEST_CASE("a damaged newest checkpoint stops the run with an error that names what to remove") {
  const TemporaryDirectory run;
  REQUIRE(run_tiny(saving_config(), run.path()) == 0);
  damage(run.path(), 8);
  const std::string directory = CheckpointStore(run / "checkpoints").path_of(8).string();
  REQUIRE_THAT(refusal(run.path()), Contains("to resume from step 6, remove " + directory) &&
                                        Contains("--checkpoint=auto-fallback"));
  REQUIRE(steps_of(run.path()) == Steps{2, 4, 6, 8});
}

TEST_CASE(
    "with auto-fallback a run resumes from the newest intact checkpoint with the same losses") {
  const TemporaryDirectory whole, run;
  REQUIRE(run_tiny(saving_config(), whole.path()) == 0);
  REQUIRE(run_tiny(saving_config(), run.path()) == 0);
  damage(run.path(), 8);
  damage(run.path(), 6, "index.table");
  RunWith dry = falling_back();
  dry.dry_run = true;
  REQUIRE(run_tiny(saving_config(), run.path(), dry) == 0);
  REQUIRE(steps_of(run.path()) == Steps{2, 4, 6, 8});  // The dry run writes nothing.
  REQUIRE(run_tiny(saving_config(), run.path(), falling_back()) == 0);
  REQUIRE(losses_of(run.path()) == losses_of(whole.path()));
  REQUIRE(steps_of(run.path()) == Steps{2, 4, 6, 8});
  for (const int64_t step : {4, 6, 8})
    REQUIRE_NOTHROW(read_arrays(CheckpointStore(run / "checkpoints").open(step)));
  // Damaged checkpoints are renamed, not deleted.
  REQUIRE(fs::exists(run / "checkpoints/damaged_step_0000000006"));
  REQUIRE(fs::exists(run / "checkpoints/damaged_step_0000000008"));
  REQUIRE(values_of(run.path(), "damaged") == std::vector<std::string>{"2"});
}

TEST_CASE("an intact newest checkpoint is used, even if earlier ones are damaged") {
  const TemporaryDirectory run;
  REQUIRE(run_tiny(saving_config(), run.path()) == 0);
  damage(run.path(), 4);
  REQUIRE(run_tiny(saving_config(), run.path(), falling_back()) == 0);
  REQUIRE(steps_of(run.path()) == Steps{2, 4, 6, 8});
}

TEST_CASE("if every checkpoint is damaged, the run fails and does not restart") {
  const TemporaryDirectory run;
  REQUIRE(run_tiny(saving_config(), run.path()) == 0);
  for (const int64_t step : steps_of(run.path())) damage(run.path(), step);
  REQUIRE_THAT(refusal(run.path(), falling_back()),
               Contains("every checkpoint is damaged (steps 8, 6, 4, 2)") && Contains("--restart"));
  REQUIRE(steps_of(run.path()) == Steps{2, 4, 6, 8});
}

TEST_CASE("auto-fallback does not treat a checkpoint of another model as damaged") {
  const TemporaryDirectory run;
  REQUIRE(run_tiny(saving_config(), run.path()) == 0);
  ExperimentConfig config = saving_config();
  task_of(config).learner.ema_decay = 0.9;  // Adds averaged weights, which the checkpoint lacks.
  RunWith options = falling_back();
  options.allow_config_change = true;
  REQUIRE_THROWS_WITH(run_tiny(config, run.path(), options), Contains("no array"));
  REQUIRE(steps_of(run.path()) == Steps{2, 4, 6, 8});
}

TEST_CASE("processes agree on the newest checkpoint that is intact for all of them") {
  const TemporaryDirectory run;
  ExperimentConfig config = saving_config();
  config.mesh.ici_mesh_shape = {1, 2, 1};
  config.rules = strategy_rules(Strategy::kFullyShardedTensor);
  const auto run_two = [&](const RunWith& options) {
    const auto transports = make_loopback(2);
    std::vector<std::string> errors(2);
    {
      std::vector<std::jthread> threads;
      for (size_t rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
          ProcessGroup processes(transports[rank], std::chrono::seconds(60));
          try {
            run_tiny(config, run.path(), options, processes);
          } catch (const Error& error) {
            errors[rank] = error.what();
            processes.fail_together(error.what(), 1, std::chrono::seconds(20));
          }
        });
    }
    return errors;
  };
  REQUIRE(run_two({}) == std::vector<std::string>(2));
  const auto losses = losses_of(run.path());
  // Damages a shard that only process 1 reads.
  damage(run.path(), 8, "host_00001.h5");
  REQUIRE(run_two(falling_back()) == std::vector<std::string>(2));
  REQUIRE(losses_of(run.path()) == losses);
  REQUIRE(values_of(run.path(), "damaged") == std::vector<std::string>{"1"});
  REQUIRE(fs::exists(run / "checkpoints/damaged_step_0000000008"));
}

}  // namespace
}  // namespace tessera
