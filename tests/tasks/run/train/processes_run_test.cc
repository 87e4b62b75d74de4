// SPDX-License-Identifier: Apache-2.0
// Runs of several processes, simulated by threads with a loopback transport: the metrics match one
// process, one process writes, and all end together.
#include <functional>
#include <mutex>
#include <thread>

#include "core/base/error.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "inputs/synthetic_input.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/run_with.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

}  // namespace

// A synthetic input, but process `broken_host` fails to read its batch number `broken_batch`.
class BreakingInput final : public BaseInput {
 public:
  struct HParams {
    using Instance = BreakingInput;
    static constexpr std::string_view kName = "BreakingInput";
    int64_t broken_host = 0;
    int64_t broken_batch = 0;
    Required<int64_t> global_batch_size;
    FIELDS(broken_host, broken_batch, global_batch_size)
  };
  explicit BreakingInput(const HParams& p)
      : p_(p),
        input_({.task = SyntheticTask::kCopy,
                .global_batch_size = p.global_batch_size.get(),
                .seq_len = 16,
                .num_letters = 8,
                .distance = 2}) {}
  const std::string& name() const override { return input_.name(); }
  int64_t global_batch_size() const override { return input_.global_batch_size(); }
  void attach(const Infeed& infeed) override {
    host_ = infeed.infeed_host_index;
    input_.attach(infeed);
  }
  int64_t vocab_size() const override { return input_.vocab_size(); }
  Batch specification() const override { return input_.specification(); }
  std::optional<Batch> get_next() override {
    if (host_ == p_.broken_host && input_.state().position == p_.broken_batch)
      fail("disk of host {} gone", host_);
    return input_.get_next();
  }
  std::optional<Batch> peek() override { return input_.peek(); }
  void reset() override { input_.reset(); }
  InputState state() const override { return input_.state(); }
  void restore(const InputState& state) override { input_.restore(state); }

 private:
  HParams p_;
  SyntheticInput input_;
  int64_t host_ = 0;
};
const TemplateRegistrar<BaseInput, BreakingInput> kRegister;

namespace {

// The exit code or the error of each process.
struct Outcome {
  int exit_code = -1;
  std::string error;
};

// Whether a failing process notifies the others, as runexp does, or vanishes as if killed.
enum class Farewell { kNone, kSaid };

std::vector<Outcome> run_processes(int count, const ExperimentConfig& config,
                                   const fs::path& directory, const RunWith& options,
                                   Farewell farewell = Farewell::kSaid) {
  const auto transports = make_loopback(count);
  std::vector<Outcome> outcomes(static_cast<size_t>(count));
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < outcomes.size(); ++rank)
      threads.emplace_back([&, rank] {
        ProcessGroup processes(transports[rank], std::chrono::seconds(60));
        try {
          outcomes[rank].exit_code = run_tiny(config, directory, options, processes);
        } catch (const Error& error) {
          outcomes[rank].error = error.what();
          if (farewell == Farewell::kSaid)
            processes.fail_together(error.what(), 1, std::chrono::seconds(20));
        }
      });
  }
  return outcomes;
}

ExperimentConfig on_mesh(const std::vector<int64_t>& shape, int64_t steps = 8) {
  ExperimentConfig config = tiny_config(steps);
  config.mesh.ici_mesh_shape = shape;
  config.rules = strategy_rules(Strategy::kFullyShardedTensor);
  task_of(config).train.eval_interval_steps = steps;
  return config;
}

void require_same_losses(const fs::path& a, const fs::path& b) {
  const auto expected = losses_of(a), losses = losses_of(b);
  REQUIRE(expected.size() == losses.size());
  for (const auto& [step, loss] : expected) {
    INFO("step " << step);
    REQUIRE(std::stod(losses.at(step)) == Approx(std::stod(loss)).epsilon(1e-4));
  }
}

TEST_CASE("several processes train like one, and process 0 writes all files") {
  const TemporaryDirectory directory;
  RunWith options;
  REQUIRE(run_tiny(on_mesh({1, 1, 1}), directory / "one") == 0);
  for (const int count : {2, 4}) {
    INFO(count << " processes");
    options.devices = 4 / count;
    const fs::path run = directory / std::to_string(count);
    for (const Outcome& outcome : run_processes(count, on_mesh({1, 2, 2}), run, options)) {
      INFO(outcome.error);
      REQUIRE(outcome.exit_code == 0);
    }
    require_same_losses(directory / "one", run);
    REQUIRE(values_of(run, "loss").size() == 8);  // One line per step.
    REQUIRE(values_of(run, "processes") == std::vector<std::string>{std::to_string(count)});
    REQUIRE(values_of(run, "devices") == std::vector<std::string>{"4"});
    REQUIRE(values_of(run, "eval/validation/weight") ==
            values_of(directory / "one", "eval/validation/weight"));
    REQUIRE(values_of(run, "event") ==
            std::vector<std::string>{"\"start\"", "\"save\"", "\"done\""});
  }
}

TEST_CASE("a run resumes with another number of devices on another mesh") {
  const TemporaryDirectory directory;
  ExperimentConfig config = on_mesh({1, 1, 1}, 8);
  REQUIRE(run_tiny(config, directory / "one") == 0);
  config = on_mesh({1, 2, 1}, 8);
  task_of(config).train.save_interval_steps = 4;
  RunWith options;
  for (const Outcome& outcome : run_processes(2, config, directory / "moved", options))
    REQUIRE(outcome.exit_code == 0);
  fs::remove_all(directory / "moved/checkpoints/step_0000000008");
  config.mesh.ici_mesh_shape = {2, 1, 2};
  options.devices = 2;
  options.allow_config_change = true;
  for (const Outcome& outcome : run_processes(2, config, directory / "moved", options)) {
    INFO(outcome.error);
    REQUIRE(outcome.exit_code == 0);
  }
  require_same_losses(directory / "one", directory / "moved");
}

TEST_CASE("an input error in one process ends all processes, and nothing is saved") {
  const TemporaryDirectory directory;
  ExperimentConfig config = on_mesh({1, 2, 1});
  config.input =
      BreakingInput::HParams{.broken_host = 1, .broken_batch = 3, .global_batch_size = 8};
  const std::vector<Outcome> outcomes = run_processes(2, config, directory.path(), {});
  for (const Outcome& outcome : outcomes) REQUIRE(outcome.exit_code == -1);
  REQUIRE(outcomes[1].error == "disk of host 1 gone");
  REQUIRE_THAT(outcomes[0].error, Catch::Contains("disk of host 1 gone"));
  REQUIRE(values_of(directory.path(), "loss").size() == 3);
  REQUIRE(CheckpointStore(directory / "checkpoints").steps().empty());
}

TEST_CASE("a vanished process ends the others within the timeout, and the run can be resumed") {
  const TemporaryDirectory directory;
  ExperimentConfig config = on_mesh({1, 2, 1});
  task_of(config).train.save_interval_steps = 2;
  task_of(config).train.collective_timeout_seconds = 2;
  ExperimentConfig broken = config;
  broken.input =
      BreakingInput::HParams{.broken_host = 1, .broken_batch = 3, .global_batch_size = 8};
  const std::vector<Outcome> outcomes =
      run_processes(2, broken, directory.path(), {}, Farewell::kNone);
  REQUIRE_THAT(outcomes[0].error, Catch::Contains("process 1") && Catch::Contains("step 4"));
  REQUIRE(CheckpointStore(directory / "checkpoints").steps() == std::vector<int64_t>{2});
  RunWith options;
  options.allow_config_change = true;
  for (const Outcome& outcome : run_processes(2, config, directory.path(), options)) {
    INFO(outcome.error);
    REQUIRE(outcome.exit_code == 0);
  }
  REQUIRE(losses_of(directory.path()).size() == 8);
}

TEST_CASE("a directory locked by another run is rejected by all processes") {
  const TemporaryDirectory directory;
  RunWith options;
  options.job_log_dir = directory.path();
  options.verbosity = Verbosity::kSilent;
  const TinyDevices devices;
  ProcessGroup alone;
  const auto first = make_run(on_mesh({1, 1, 1}), options, devices.in_order(), alone);
  for (const Outcome& outcome : run_processes(2, on_mesh({1, 2, 1}), directory.path(), {}))
    REQUIRE_THAT(outcome.error, Catch::Contains("process"));
}

TEST_CASE("a mesh that does not match the number of processes is rejected by all") {
  const TemporaryDirectory directory;
  for (const Outcome& outcome : run_processes(2, on_mesh({1, 2, 2}), directory.path(), {}))
    REQUIRE_THAT(
        outcome.error,
        Catch::Contains("needs 4 devices, but 2 processes with 1 each have 2; give --devices=2"));
}

}  // namespace
}  // namespace tessera
