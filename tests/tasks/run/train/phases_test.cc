// SPDX-License-Identifier: Apache-2.0
// Runs whose batch size and sequence length change (task.train.phases): what they log, that they
// resume bit for bit on both sides of a change, on several devices and processes, and what is
// refused before step 0.
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/json.h"
#include "inputs/span_corruption_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/synthetic_input.h"
#include "layers/models/transformer.h"
#include "tasks/planner/plan.h"
#include "tasks/run/train/train_session.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

// 64 tokens in steps 0 to 2, 64 in steps 3 and 4, then 128.
const std::vector<TrainPhase> kPhases = {
    {.batch_size = 8, .seq_len = 8}, {.start_step = 3, .batch_size = 4}, {.start_step = 5}};
const std::vector<std::string> kTokens = {"64", "128", "192", "256", "320", "448", "576", "704"};

ExperimentConfig with_phases(const std::vector<TrainPhase>& phases, int64_t steps = 8) {
  ExperimentConfig config = tiny_config(steps);
  SingleTask::HParams& task = task_of(config);
  task.train.phases = phases;
  task.train.save_interval_steps = 1;
  task.train.save_max_to_keep = 0;
  // Sequences of all sizes have scored labels.
  config.input.as<SyntheticInput::HParams>().score_all = true;
  return config;
}

void remove_checkpoints_after(const fs::path& run, int64_t step) {
  for (int64_t later = step + 1; later <= 8; ++later)
    fs::remove_all(run / fmt::format("checkpoints/step_{:010}", later));
}

TEST_CASE("the first phase is a run of its size, and tokens are counted over all phases") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = with_phases({{.batch_size = 4}, {.start_step = 3}});
  REQUIRE(run_tiny(config, directory / "phases") == 0);
  ExperimentConfig plain = with_phases({});
  plain.input.as<SyntheticInput::HParams>().global_batch_size = 4;
  REQUIRE(run_tiny(plain, directory / "plain") == 0);
  auto expected = values_of(directory / "plain", "loss");
  auto losses = values_of(directory / "phases", "loss");
  REQUIRE(losses.size() == 8);
  REQUIRE(losses[3] != expected[3]);
  expected.resize(3);
  losses.resize(3);
  REQUIRE(losses == expected);
  REQUIRE(values_of(directory / "phases", "tokens") ==
          std::vector<std::string>{"64", "128", "192", "320", "448", "576", "704", "832"});
  const std::vector<double> rates = numbers_of(directory / "phases", "tokens_per_sec");
  const std::vector<double> seconds = numbers_of(directory / "phases", "step_time");
  for (size_t i = 0; i < 8; ++i)
    REQUIRE(rates[i] * seconds[i] == Approx(i < 3 ? 64 : 128).epsilon(1e-3));
}

TEST_CASE("phases of a run whose batch size was changed without them are refused") {
  const TemporaryDirectory directory;
  RunWith options;
  options.allow_config_change = true;
  ExperimentConfig config = with_phases({}, 2);
  config.input.as<SyntheticInput::HParams>().global_batch_size = 4;
  REQUIRE(run_tiny(config, directory / "run", options) == 0);
  REQUIRE(run_tiny(with_phases({}, 4), directory / "run", options) == 0);
  config = with_phases({{}, {.start_step = 6, .batch_size = 16}});
  REQUIRE_THAT(error_of([&] { run_tiny(config, directory / "run", options); }),
               Contains("task.train.phases: the run had another global_batch_size before step 4"));
}

TEST_CASE("a run resumes before, at and after a change of phase bit for bit") {
  const TemporaryDirectory directory;
  const fs::path run = directory / "run";
  ExperimentConfig config = with_phases(kPhases);
  REQUIRE(run_tiny(config, run) == 0);
  const auto expected = values_of(run, "loss");
  REQUIRE(expected.size() == 8);
  REQUIRE(values_of(run, "tokens") == kTokens);
  for (const int64_t step : {7, 6, 5, 4, 3, 2}) {
    INFO("from step " << step);
    remove_checkpoints_after(run, step);
    RunWith options;
    options.allow_config_change = true;
    task_of(config).train.prefetch_batches = step % 3 + 1;
    REQUIRE(run_tiny(config, run, options) == 0);
    REQUIRE(values_of(run, "loss") == expected);
    REQUIRE(values_of(run, "tokens") == kTokens);
  }
  task_of(config).train.phases[2].start_step = 4;
  remove_checkpoints_after(run, 5);
  RunWith options;
  options.allow_config_change = true;
  REQUIRE_THAT(error_of([&] { run_tiny(config, run, options); }),
               Contains("the run has read 20 rows in 5 batches; with the current sizes of batches "
                        "it would be 24"));
}

// The losses on this mesh in two processes.
std::vector<double> losses_in_two(ExperimentConfig config, const fs::path& run) {
  const auto transports = make_loopback(2);
  std::vector<int> codes(2, -1);
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < codes.size(); ++rank)
      threads.emplace_back([&, rank] {
        ProcessGroup both(transports[rank], std::chrono::seconds(60));
        RunWith options;
        options.devices = config.mesh.ici_mesh_shape[1] / 2;
        try {
          codes[rank] = run_tiny(config, run, options, both);
        } catch (const Error& error) {
          WARN(error.what());
          both.fail_together(error.what(), 1, std::chrono::seconds(20));
        }
      });
  }
  REQUIRE(codes == std::vector<int>{0, 0});
  return numbers_of(run, "loss");
}

TEST_CASE("phases on several devices and in two processes give the losses of one device") {
  const TemporaryDirectory directory;
  ExperimentConfig config = with_phases(kPhases);
  REQUIRE(run_tiny(config, directory / "one") == 0);
  const std::vector<double> expected = numbers_of(directory / "one", "loss");
  config.mesh.ici_mesh_shape = {1, 4, 1};
  config.rules = strategy_rules(Strategy::kFullySharded);
  const std::vector<double> losses = losses_in_two(config, directory / "two");
  REQUIRE(losses.size() == expected.size());
  for (size_t i = 0; i < losses.size(); ++i)
    REQUIRE(losses[i] == Approx(expected[i]).epsilon(1e-4));
  REQUIRE(values_of(directory / "two", "tokens") == kTokens);
}

TEST_CASE("phases of mesh-invariant steps give the same bits on one and on two devices") {
  const TemporaryDirectory directory;
  ExperimentConfig config = with_phases(kPhases, 6);
  task_of(config).train.numerics = Numerics::kMeshInvariant;
  REQUIRE(run_tiny(config, directory / "one") == 0);
  config.mesh.ici_mesh_shape = {1, 2, 1};
  config.rules = strategy_rules(Strategy::kFullySharded);
  RunWith options;
  options.devices = 2;
  REQUIRE(run_tiny(config, directory / "two", options) == 0);
  REQUIRE(values_of(directory / "two", "loss") == values_of(directory / "one", "loss"));
}

TEST_CASE("phases of a pipeline, with microbatches, give the losses of one device") {
  const TemporaryDirectory directory;
  ExperimentConfig config = with_phases(kPhases, 6);
  task_of(config).train.num_microbatches = 2;
  auto& lm = task_of(config).model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
  lm.num_layers = 2;
  lm.stacked_transformer_tpl = Repeated::HParams{};
  REQUIRE(run_tiny(config, directory / "one") == 0);
  config.mesh.ici_mesh_shape = {2, 1, 1, 1};
  config.mesh.axis_names = strategy_axes(Strategy::kPipeline, std::move(config.mesh.axis_names));
  config.rules = strategy_rules(Strategy::kPipeline);
  RunWith options;
  options.devices = 2;
  REQUIRE(run_tiny(config, directory / "stages", options) == 0);
  const auto expected = numbers_of(directory / "one", "loss");
  const auto losses = numbers_of(directory / "stages", "loss");
  REQUIRE(losses.size() == 6);
  for (size_t i = 0; i < losses.size(); ++i)
    REQUIRE(losses[i] == Approx(expected[i]).epsilon(1e-4));
}

TEST_CASE("the plan has every phase, and the memory of the largest one") {
  const TemporaryDirectory directory;
  const auto plan_of = [&](const ExperimentConfig& config) {
    TinyDevices devices;
    ProcessGroup alone;
    return Session(config, {.run_directory = directory.path(), .allocates = false},
                   devices.in_order(), alone)
        .plan(hardware_named("a100"));
  };
  const Plan plan = plan_of(with_phases(kPhases)), plain = plan_of(with_phases({}));
  REQUIRE(plan.phases.size() == 3);
  REQUIRE(plan.arena == plain.arena);
  REQUIRE(plan.peak == plain.peak);
  REQUIRE(plan.tokens_per_step == 128);
  REQUIRE(plan.phases[2].peak == plain.peak);
  REQUIRE(plan.phases[1].peak < plain.peak);
  REQUIRE(plan.phases[2].step_seconds == plain.prediction->step_seconds);
  REQUIRE(plan.phases[1].step_seconds < plan.phases[2].step_seconds);
  REQUIRE_THAT(plan_text(plan),
               Contains("  from step 3             2 steps of 4 rows of 16 tokens") &&
                   Contains("whole run: 704 tokens, "));
  const Json json = parse_json(plan_json(plan), "the plan");
  REQUIRE(json.find("phases")->as_array().size() == 3);
}

std::string refusal(const std::vector<TrainPhase>& phases,
                    const std::function<void(ExperimentConfig&)>& change = {}) {
  const TemporaryDirectory directory;
  ExperimentConfig config = with_phases(phases);
  if (change) change(config);
  RunWith options;
  options.devices = config.mesh.ici_mesh_shape.empty() ? 1 : config.mesh.ici_mesh_shape[1];
  std::string error = error_of([&] { run_tiny(config, directory / "run", options); });
  REQUIRE(!fs::exists(directory / "run/metrics.jsonl"));
  return error;
}

TEST_CASE("phases that cannot be are refused before step 0") {
  REQUIRE_THAT(refusal({{.start_step = 2}}),
               Contains("task.train.phases[0] (8 rows of 16 tokens): start_step is 2, expected 0"));
  REQUIRE_THAT(
      refusal({{}, {.start_step = 5}, {.start_step = 5}}),
      Contains("task.train.phases[2] (8 rows of 16 tokens): start_step is 5, expected more"));
  REQUIRE_THAT(refusal({{}, {.start_step = 5, .seq_len = 32}}),
               Contains("task.train.phases[1] (8 rows of 32 tokens): seq_len is 32, expected a "
                        "divisor of 16"));
  REQUIRE_THAT(refusal({{.batch_size = 3, .seq_len = 8}}),
               Contains("task.train.phases[0] (3 rows of 8 tokens): batch_size is 3, expected a "
                        "multiple of 2"));
  const auto on_two = [](ExperimentConfig& config) {
    config.mesh.ici_mesh_shape = {1, 2, 1};
    config.rules = strategy_rules(Strategy::kFullySharded);
  };
  REQUIRE_THAT(
      refusal({{}, {.start_step = 5, .batch_size = 5}}, on_two),
      Contains("global_batch_size: ") && Contains("task.train.phases[1] (5 rows of 16 tokens)"));
  REQUIRE_THAT(refusal({{}, {.start_step = 5, .batch_size = 6}},
                       [](auto& config) { task_of(config).train.num_microbatches = 4; }),
               Contains("a batch of 6 cannot be divided into 4 microbatches") &&
                   Contains("task.train.phases[1] (6 rows of 16 tokens)"));
  REQUIRE_THAT(
      refusal({{.batch_size = 4}},
              [](auto& config) {
                config.input = StreamingTextInput::HParams{.path = "docs",
                                                           .sharding = Sharding::kByHost,
                                                           .global_batch_size = 8,
                                                           .seq_len = 16};
              }),
      Contains("task.train.phases[0] (4 rows of 16 tokens): batches need 4 rows of input 'train', "
               "whose global_batch_size=8 cannot change"));
  REQUIRE_THAT(refusal({{.seq_len = 1}},
                       [](auto& config) {
                         config.input = SpanCorruptionInput::HParams{
                             .input_tpl = SyntheticInput::HParams{.num_letters = 8},
                             .first_sentinel_id = 1000,
                             .global_batch_size = 8,
                             .seq_len = 64};
                       }),
               Contains("cannot be cut: 'encoder_"));
}

}  // namespace
}  // namespace tessera
