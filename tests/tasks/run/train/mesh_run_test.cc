// SPDX-License-Identifier: Apache-2.0
// One run on meshes of several devices: its metrics match one device, and its memory and
// traffic match the plan.
#include <cmath>
#include <csignal>
#include <functional>
#include <numeric>
#include <thread>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/compile/cost.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "inputs/synthetic_input.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/schedules.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The tiny run on a mesh of shape {replica, data, mdl}, or {replica, data, ctx, mdl}.
ExperimentConfig on_mesh(ExperimentConfig config, const std::vector<int64_t>& shape,
                         Strategy strategy) {
  config.mesh.ici_mesh_shape = shape;
  config.mesh.axis_names = strategy_axes(strategy, std::move(config.mesh.axis_names));
  config.rules = strategy_rules(strategy);
  return config;
}

RunWith with_devices(int64_t devices) {
  RunWith options;
  options.devices = devices;
  return options;
}

int64_t devices_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<double> numbers(const fs::path& directory, const std::string& key) {
  std::vector<double> values;
  for (const std::string& value : values_of(directory, key)) values.push_back(std::stod(value));
  return values;
}

// Evaluates at the last step.
ExperimentConfig with_evaluation(int64_t steps) {
  ExperimentConfig config = tiny_config(steps);
  task_of(config).train.eval_interval_steps = steps;
  return config;
}

struct Case {
  std::vector<int64_t> shape;
  Strategy strategy;
  int64_t microbatches = 1;
};

TEST_CASE("a run gives the same losses and evaluation on 1, 2, 4 and 8 devices") {
  using enum Strategy;
  const TemporaryDirectory directory;
  const ExperimentConfig config = with_evaluation(20);
  REQUIRE(run_tiny(config, directory / "one") == 0);
  const std::vector<double> expected = numbers(directory / "one", "loss");
  const std::vector<double> norms = numbers(directory / "one", "grad_norm");
  const std::vector<double> scores = numbers(directory / "one", "eval/validation/log_pplx");
  REQUIRE(expected.size() == 20);
  int number = 0;
  for (const Case& trial :
       {Case{{1, 2, 1}, kReplicas}, Case{{1, 1, 2}, kSequence}, Case{{1, 4, 1}, kFullySharded, 2},
        Case{{2, 2, 1}, kReplicas, 2}, Case{{2, 2, 1}, kFullySharded, 2},
        Case{{1, 2, 2}, kFullyShardedTensor}, Case{{2, 2, 2}, kPax},
        Case{{1, 4, 2}, kFullyShardedSequence}, Case{{1, 1, 2, 1}, kContext},
        Case{{1, 4, 2, 1}, kFullyShardedContext}, Case{{1, 2, 1, 2}, kFullyShardedTensorContext}}) {
    INFO("mesh " << fmt::format("{}", trial.shape) << ", " << enum_name(trial.strategy));
    ExperimentConfig split = on_mesh(config, trial.shape, trial.strategy);
    task_of(split).train.num_microbatches = trial.microbatches;
    const fs::path run = directory / std::to_string(++number);
    REQUIRE(run_tiny(split, run, with_devices(devices_of(trial.shape))) == 0);
    const std::vector<double> losses = numbers(run, "loss");
    REQUIRE(losses.size() == expected.size());
    REQUIRE(losses[0] == Approx(expected[0]).epsilon(1e-5));
    REQUIRE(numbers(run, "grad_norm")[0] == Approx(norms[0]).epsilon(1e-5));
    for (size_t i = 0; i < losses.size(); ++i) {
      INFO("step " << i + 1);
      REQUIRE(losses[i] == Approx(expected[i]).epsilon(1e-4));
    }
    REQUIRE(numbers(run, "eval/validation/log_pplx")[0] == Approx(scores[0]).epsilon(1e-4));
    REQUIRE(values_of(run, "eval/validation/weight") ==
            values_of(directory / "one", "eval/validation/weight"));
    REQUIRE(values_of(run, "tokens") == values_of(directory / "one", "tokens"));
    REQUIRE(values_of(run, "devices")[0] == std::to_string(devices_of(trial.shape)));
  }
}

TEST_CASE("a run on a mesh gives the same bits when repeated") {
  const TemporaryDirectory directory;
  const ExperimentConfig config =
      on_mesh(tiny_config(5, DType::kBF16), {1, 2, 2}, Strategy::kFullyShardedTensor);
  REQUIRE(run_tiny(config, directory / "a", with_devices(4)) == 0);
  REQUIRE(run_tiny(config, directory / "b", with_devices(4)) == 0);
  REQUIRE(losses_of(directory / "a") == losses_of(directory / "b"));
}

TEST_CASE("a run resumes on another mesh") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(12);
  task_of(config).train.save_interval_steps = 6;
  task_of(config).learner.ema_decay = 0.9;
  REQUIRE(run_tiny(config, directory / "one") == 0);
  const ExperimentConfig four = on_mesh(config, {1, 2, 2}, Strategy::kFullyShardedTensor);
  REQUIRE(run_tiny(four, directory / "moved", with_devices(4)) == 0);
  const std::vector<double> expected = numbers(directory / "one", "loss");
  fs::remove_all(directory / "moved/checkpoints/step_0000000012");
  RunWith options = with_devices(8);
  options.allow_config_change = true;
  REQUIRE(run_tiny(on_mesh(config, {2, 4, 1}, Strategy::kFullySharded), directory / "moved",
                   options) == 0);
  const std::vector<double> losses = numbers(directory / "moved", "loss");
  REQUIRE(losses.size() == 12);
  for (size_t i = 0; i < losses.size(); ++i)
    REQUIRE(losses[i] == Approx(expected[i]).epsilon(1e-4));
}

// A session of this configuration, ready to take steps.
struct Machine {
  explicit Machine(const ExperimentConfig& config)
      : directory(),
        devices(devices_of(config.mesh.ici_mesh_shape)),
        session(config,
                {.run_directory = directory.path(),
                 .devices = devices_of(config.mesh.ici_mesh_shape),
                 .on_stage =
                     [this](std::string_view stage, const Graph& graph) {
                       if (stage == "lower") lowered = graph;
                     }},
                devices.in_order(), alone) {}
  TemporaryDirectory directory;
  TinyDevices devices;
  ProcessGroup alone;
  Graph lowered;
  Session session;
};

TEST_CASE("devices send as many bytes as the plan predicts") {
  using enum Strategy;
  for (const auto& [shape, strategy] :
       {std::pair{std::vector<int64_t>{1, 4, 1}, kReplicas},
        std::pair{std::vector<int64_t>{1, 4, 1}, kFullySharded},
        std::pair{std::vector<int64_t>{1, 2, 2}, kFullyShardedSequence},
        std::pair{std::vector<int64_t>{1, 2, 2, 1}, kFullyShardedContext}}) {
    INFO(enum_name(strategy));
    Machine machine(on_mesh(tiny_config(), shape, strategy));
    const int64_t planned = bytes_per_step(collectives(machine.lowered));
    REQUIRE(planned > 0);
    for (int64_t step = 0; step < 3; ++step)
      machine.session.train_program().run(*machine.session.input().get_next(), step);
    // If sizes are not divisible by the number of devices, some devices send slightly more than
    // others.
    int64_t sent = 0;
    for (int64_t device = 0; device < devices_of(shape); ++device) {
      const int64_t each = machine.session.communicator()->bytes_sent(device);
      REQUIRE(each == Approx(3 * planned).epsilon(0.01));
      sent += each;
    }
    REQUIRE(sent == 3 * planned * devices_of(shape));
  }
}

TEST_CASE("the last line of a run has the planned number of bytes sent per device") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = on_mesh(tiny_config(3), {1, 4, 1}, Strategy::kReplicas);
  REQUIRE(run_tiny(config, directory.path(), with_devices(4)) == 0);
  const Machine machine(config);
  REQUIRE(numbers(directory.path(), "sent_bytes_per_step").at(0) ==
          static_cast<double>(bytes_per_step(collectives(machine.lowered))));
}

TEST_CASE("all devices skip the same steps as a single device") {
  ExperimentConfig config = tiny_config(6);
  task_of(config).learner.optimizer_tpl = AdamW::HParams{
      .schedule_tpl = PiecewiseConstant::HParams{.boundaries = {2}, .values = {1.0, 1e35}}};
  config.eval_inputs.clear();
  const TemporaryDirectory directory;
  REQUIRE(run_tiny(config, directory / "one") == 0);
  REQUIRE(run_tiny(on_mesh(config, {1, 2, 2}, Strategy::kFullyShardedTensor), directory / "four",
                   with_devices(4)) == 0);
  const std::vector<std::string> skipped = values_of(directory / "four", "skipped");
  REQUIRE(skipped == values_of(directory / "one", "skipped"));
  REQUIRE(skipped.front() == "0");
  REQUIRE(std::stoi(skipped.back()) >= 2);
}

TEST_CASE("samples of a run do not depend on the mesh") {
  ExperimentConfig config = tiny_config(1);
  task_of(config).train.sample = {
      .length = 6, .temperature = 0.0, .prompts = {"7 9 12", "8", "10 11 7 7 9 12 12"}};
  const auto samples = [&](const std::vector<int64_t>& shape, Strategy strategy) {
    Machine machine(on_mesh(config, shape, strategy));
    initialise_state(machine.session.executor(), machine.session.task().model().parameters(), 3, 1);
    return machine.session.samples()->take();
  };
  const std::vector<DecodedExample> expected = samples({1, 1, 1}, Strategy::kReplicas);
  REQUIRE(expected.size() == 3);
  for (const auto& [shape, strategy] :
       {std::pair{std::vector<int64_t>{1, 8, 1}, Strategy::kFullySharded},
        std::pair{std::vector<int64_t>{2, 2, 2}, Strategy::kFullyShardedSequence},
        std::pair{std::vector<int64_t>{1, 2, 2, 1}, Strategy::kContext},
        std::pair{std::vector<int64_t>{1, 1, 4, 1}, Strategy::kRing}}) {
    const std::vector<DecodedExample> split = samples(shape, strategy);
    REQUIRE(split.size() == expected.size());
    for (size_t i = 0; i < split.size(); ++i) {
      REQUIRE(split[i].samples[0].ids == expected[i].samples[0].ids);
      REQUIRE(split[i].samples[0].log_probability ==
              Approx(expected[i].samples[0].log_probability).epsilon(1e-4));
    }
  }
}

TEST_CASE("SIGTERM saves a run of eight devices at a step boundary, and the run resumes") {
  const ExperimentConfig config =
      on_mesh(tiny_config(400), {2, 2, 2}, Strategy::kFullyShardedTensor);
  const TemporaryDirectory directory;
  std::jthread terminator([&] {
    while (losses_of(directory.path()).size() < 3)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::raise(SIGTERM);
  });
  REQUIRE(run_tiny(config, directory.path(), with_devices(8)) == 0);
  terminator.join();
  const std::vector<int64_t> saved = CheckpointStore(directory / "checkpoints").steps();
  REQUIRE(saved.size() == 1);
  REQUIRE(saved[0] < 400);
  REQUIRE(values_of(directory.path(), "event").back() == "\"preempt\"");
  ExperimentConfig shorter = config;
  task_of(shorter).train.num_train_steps = saved[0] + 1;
  RunWith options = with_devices(8);
  options.allow_config_change = true;
  REQUIRE(run_tiny(shorter, directory.path(), options) == 0);
  REQUIRE(static_cast<int64_t>(losses_of(directory.path()).size()) == saved[0] + 1);
}

TEST_CASE("planning a mesh needs no devices") {
  const TemporaryDirectory directory;
  ExperimentConfig config = on_mesh(tiny_config(), {4, 192, 2}, Strategy::kFullyShardedTensor);
  config.input.as<SyntheticInput::HParams>().global_batch_size = 768;
  config.eval_inputs.at("validation").as<SyntheticInput::HParams>().global_batch_size = 768;
  config.rules.weights = "mlp -> mdl, heads -> mdl";
  RunWith plan;
  plan.mode = PlanOptions{};
  REQUIRE(run_tiny(config, directory.path(), plan) == 0);
  REQUIRE(fs::is_empty(directory.path()));
}

std::string message_of(const ExperimentConfig& config, int64_t devices) {
  const TemporaryDirectory directory;
  return error_of([&] { run_tiny(config, directory.path(), with_devices(devices)); });
}

TEST_CASE(
    "a configuration that the mesh cannot split is rejected before step 0 with a valid size") {
  ExperimentConfig config = on_mesh(tiny_config(2), {1, 3, 1}, Strategy::kReplicas);
  REQUIRE_THAT(message_of(config, 3),
               Catch::Contains("global_batch_size: batch=8 cannot be split by replica*data=3; the "
                               "nearest size that can is 9 [in input]"));
  config.input.as<SyntheticInput::HParams>().global_batch_size = 6;
  REQUIRE_THAT(message_of(config, 3), Catch::Contains("[in eval_inputs.validation]"));
  REQUIRE_THAT(message_of(on_mesh(tiny_config(2), {1, 1, 4}, Strategy::kTensor), 4),
               Catch::Contains("heads=2 cannot be split by mdl=4"));
  REQUIRE_THAT(message_of(on_mesh(tiny_config(2), {1, 2, 4}, Strategy::kTensor), 4),
               Catch::Contains("needs 8 devices, but 4 are available; give --devices=8, or --set "
                               "ici_mesh_shape=[1,1,4]"));
  ExperimentConfig microbatches = on_mesh(tiny_config(2), {1, 4, 1}, Strategy::kReplicas);
  task_of(microbatches).train.num_microbatches = 4;
  REQUIRE_THAT(
      message_of(microbatches, 4),
      Catch::Contains("a batch of 8 in 4 microbatches has 2 examples per microbatch, which "
                      "cannot be divided among 4 devices (replica*data); use a multiple "
                      "such as global_batch_size=16, or change num_microbatches"));
  ExperimentConfig misspelt = on_mesh(tiny_config(2), {1, 2, 1}, Strategy::kReplicas);
  misspelt.rules.weights = "embed -> dta";
  REQUIRE_THAT(message_of(misspelt, 2), Catch::Contains("did you mean 'data'"));
  misspelt.rules.weights = "embd -> data";
  REQUIRE_THAT(
      message_of(misspelt, 2),
      Catch::Contains("rules.weights: no tensor has an axis 'embd'; did you mean 'embed'?"));
  misspelt.rules.weights = "";
  misspelt.rules.activations = "batch -> data, residul: seq -> mdl";
  REQUIRE_THAT(message_of(misspelt, 2),
               Catch::Contains("rules.activations: no layer uses the role 'residul'; did you "
                               "mean 'residual'?"));
  misspelt.rules.activations = "batch -> (data, data)";
  REQUIRE_THAT(message_of(misspelt, 2), Catch::Contains("batch is split over data twice"));
  REQUIRE_THAT(message_of(on_mesh(tiny_config(2), {0, 2, 1}, Strategy::kReplicas), 2),
               Catch::Contains("axis 'replica' has size 0"));
}

TEST_CASE("a sequence that the mesh cannot split is rejected before step 0") {
  using enum Strategy;
  REQUIRE_THAT(message_of(on_mesh(tiny_config(2), {1, 1, 4, 1}, kContext), 4),
               Catch::Contains("heads=2 cannot be split by ctx=4"));
  ExperimentConfig odd = on_mesh(tiny_config(2), {1, 1, 2, 1}, kContext);
  odd.input.as<SyntheticInput::HParams>().seq_len = 15;
  REQUIRE_THAT(message_of(odd, 2), Catch::Contains("seq=15 cannot be split by ctx=2"));
  odd = on_mesh(tiny_config(2), {1, 1, 4, 1}, kRing);
  odd.input.as<SyntheticInput::HParams>().seq_len = 12;
  REQUIRE_THAT(
      message_of(odd, 4),
      Catch::Contains("causal attention cuts seq=12 of query_proj into two chunks for each of "
                      "the devices of ctx=4; the nearest size that can be cut is 16"));
  REQUIRE_THAT(message_of(on_mesh(tiny_config(2), {1, 2, 1}, kContext), 2),
               Catch::Contains("ici_mesh_shape has 3 sizes, expected one for each of the axes "
                               "replica, data, ctx, mdl"));
}

}  // namespace
}  // namespace tessera
