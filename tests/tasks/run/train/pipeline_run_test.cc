// SPDX-License-Identifier: Apache-2.0
// Runs whose layers are split over stages: their metrics, evaluation and samples are those of one
// device, they resume on other meshes, and configurations that cannot be are refused before step 0.
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tasks/planner/plan.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/pipeline_schedules.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

TransformerLm::HParams& lm_of(ExperimentConfig& config) {
  return task_of(config).model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
}

// The tiny run with four repeated layers and four microbatches. It evaluates at the last step.
ExperimentConfig layered_config(int64_t steps) {
  ExperimentConfig config = tiny_config(steps);
  lm_of(config).num_layers = 4;
  lm_of(config).stacked_transformer_tpl = Repeated::HParams{};
  task_of(config).train.num_microbatches = 4;
  task_of(config).train.eval_interval_steps = steps;
  return config;
}

// On a mesh {stage, replica, data, mdl}.
ExperimentConfig in_stages(ExperimentConfig config, const std::vector<int64_t>& shape,
                           Strategy strategy, const Template<PipelineSchedule>& schedule = {}) {
  config.mesh.ici_mesh_shape = shape;
  config.mesh.axis_names = strategy_axes(strategy, std::move(config.mesh.axis_names));
  config.rules = strategy_rules(strategy);
  task_of(config).train.pipeline_schedule = schedule;
  return config;
}

RunWith options_for(const ExperimentConfig& config) {
  RunWith options;
  const std::vector<int64_t>& shape = config.mesh.ici_mesh_shape;
  options.devices = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return options;
}

std::vector<double> numbers(const fs::path& directory, const std::string& key) {
  std::vector<double> values;
  for (const std::string& value : values_of(directory, key)) values.push_back(std::stod(value));
  return values;
}

void require_close(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == Approx(expected[i]).epsilon(1e-4));
}

TEST_CASE("a run in stages gives the losses and the evaluation of one device") {
  using enum Strategy;
  const TemporaryDirectory directory;
  const ExperimentConfig config = layered_config(10);
  const fs::path one = directory / "one";
  REQUIRE(run_tiny(config, one) == 0);
  struct Case {
    std::vector<int64_t> shape;
    Strategy strategy;
    Template<PipelineSchedule> schedule;
  };
  int number = 0;
  for (const Case& trial : {Case{{2, 1, 1, 1}, kPipeline, {}},
                            Case{{2, 1, 2, 1}, kFullyShardedPipeline, ZeroBubbleH1::HParams{}},
                            Case{{4, 1, 1, 1}, kPipeline, GPipe::HParams{}},
                            Case{{2, 1, 1, 2}, kTensorPipeline, OneForwardOneBackward::HParams{}},
                            Case{{2, 1, 2, 2}, kFullyShardedTensorPipeline, {}}}) {
    INFO("mesh " << fmt::format("{}", trial.shape) << ", " << enum_name(trial.strategy));
    const ExperimentConfig split = in_stages(config, trial.shape, trial.strategy, trial.schedule);
    const fs::path run = directory / std::to_string(++number);
    REQUIRE(run_tiny(split, run, options_for(split)) == 0);
    for (const char* key : {"loss", "grad_norm", "accuracy", "eval/validation/log_pplx",
                            "eval/validation/weight", "eval/validation/accuracy"}) {
      INFO(key);
      require_close(numbers(run, key), numbers(one, key));
    }
  }
}

TEST_CASE("a batch of evaluation that the microbatches of training do not divide has fewer") {
  const TemporaryDirectory directory;
  ExperimentConfig config = layered_config(1);
  config.eval_inputs.at("validation").as<SyntheticInput::HParams>().global_batch_size = 6;
  REQUIRE(run_tiny(config, directory / "one") == 0);
  const ExperimentConfig split = in_stages(config, {2, 1, 1, 1}, Strategy::kPipeline);
  REQUIRE(run_tiny(split, directory / "two", options_for(split)) == 0);
  for (const char* key : {"eval/validation/log_pplx", "eval/validation/weight"})
    require_close(numbers(directory / "two", key), numbers(directory / "one", key));
}

TEST_CASE("an evaluation in stages scores each example, in the order of the batch") {
  // Several sources, whose means need the scores of single examples.
  const TemporaryDirectory directory;
  const auto scores = [&](const ExperimentConfig& config) {
    const TinyDevices devices(options_for(config).devices);
    ProcessGroup alone;
    Session session(config,
                    {.run_directory = directory.path(), .devices = options_for(config).devices},
                    devices.in_order(), alone);
    initialise_state(session.executor(), session.task().model().parameters(), 3, 1);
    TraceSetting setting{session.mesh(), session.rules(), {}};
    return session.evaluation().run(alone).metrics;
  };
  const ExperimentConfig config = layered_config(1);
  const auto expected = scores(config);
  const auto got = scores(in_stages(config, {2, 1, 2, 1}, Strategy::kPipeline));
  REQUIRE(got.size() == expected.size());
  for (const auto& [name, value] : expected) {
    INFO(name);
    REQUIRE(got.at(name) == Approx(value).epsilon(1e-5));
  }
}

TEST_CASE("samples of a run in stages are those of one device") {
  ExperimentConfig config = layered_config(1);
  task_of(config).train.sample = {
      .length = 6, .temperature = 0.0, .prompts = {"7 9 12", "8", "10 11 7 7 9 12 12"}};
  const auto samples = [&](const ExperimentConfig& each) {
    const TemporaryDirectory directory;
    const int64_t count = options_for(each).devices;
    const TinyDevices devices(count);
    ProcessGroup alone;
    Session session(each, {.run_directory = directory.path(), .devices = count}, devices.in_order(),
                    alone);
    initialise_state(session.executor(), session.task().model().parameters(), 3, 1);
    return session.samples()->take();
  };
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    task_of(config).dtypes = DTypePolicy{.compute = compute};
    const std::vector<DecodedExample> expected = samples(config);
    // In four stages the table is on the first and the last one only.
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 1, 2, 1}, {4, 1, 1, 1}}) {
      const std::vector<DecodedExample> got =
          samples(in_stages(config, shape, Strategy::kFullyShardedPipeline));
      REQUIRE(got.size() == expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        REQUIRE(got[i].samples[0].ids == expected[i].samples[0].ids);
        REQUIRE(got[i].samples[0].log_probability ==
                Approx(expected[i].samples[0].log_probability).epsilon(1e-3));
      }
    }
  }
}

TEST_CASE("a run resumes in other stages, or in none") {
  const TemporaryDirectory directory;
  ExperimentConfig config = layered_config(12);
  task_of(config).train.save_interval_steps = 4;
  task_of(config).learner.ema_decay = 0.9;
  REQUIRE(run_tiny(config, directory / "one") == 0);
  int64_t steps = 0;
  for (const ExperimentConfig& each :
       {in_stages(config, {4, 1, 1, 1}, Strategy::kPipeline), config,
        in_stages(config, {2, 1, 2, 1}, Strategy::kFullyShardedPipeline,
                  ZeroBubbleH1::HParams{})}) {
    ExperimentConfig part = each;
    task_of(part).train.num_train_steps = steps += 4;
    RunWith options = options_for(part);
    options.allow_config_change = true;
    REQUIRE(run_tiny(part, directory / "moved", options) == 0);
  }
  require_close(numbers(directory / "moved", "loss"), numbers(directory / "one", "loss"));
  // Evaluation uses the moving averages.
  REQUIRE(numbers(directory / "moved", "eval/validation/log_pplx").back() ==
          Approx(numbers(directory / "one", "eval/validation/log_pplx").back()).epsilon(1e-4));
}

std::string message_of(const ExperimentConfig& config) {
  const TemporaryDirectory directory;
  const std::string message =
      error_of([&] { run_tiny(config, directory.path(), options_for(config)); });
  REQUIRE(values_of(directory.path(), "loss").empty());
  return message;
}

TEST_CASE("a configuration that cannot be a pipeline is refused before step 0") {
  using enum Strategy;
  ExperimentConfig config = in_stages(layered_config(2), {2, 1, 1, 1}, kPipeline);
  task_of(config).train.num_microbatches = 3;
  REQUIRE_THAT(message_of(config),
               Catch::Contains("a batch of 8 cannot be divided into 3 microbatches"));
  REQUIRE_THAT(message_of(in_stages(layered_config(2), {3, 1, 1, 1}, kPipeline)),
               Catch::Contains("4 layers cannot be divided into 3 equal pieces (stage=3)"));
  ExperimentConfig unrolled = in_stages(layered_config(2), {2, 1, 1, 1}, kPipeline);
  lm_of(unrolled).stacked_transformer_tpl = StackedTransformer::HParams{};
  REQUIRE_THAT(message_of(unrolled), Catch::Contains("use a Repeated"));
  ExperimentConfig without = layered_config(2);
  task_of(without).train.pipeline_schedule = GPipe::HParams{};
  REQUIRE_THAT(message_of(without), Catch::Contains("no axis 'stage'"));
}

TEST_CASE("the plan of a pipeline has its schedule, and warns of a table on two stages") {
  const ExperimentConfig config =
      in_stages(layered_config(2), {4, 1, 1, 1}, Strategy::kPipeline, GPipe::HParams{});
  const TemporaryDirectory directory;
  const TinyDevices devices;
  ProcessGroup alone;
  Session session(config, {.run_directory = directory.path(), .allocates = false},
                  devices.in_order(), alone);
  const std::vector<std::string> warnings =
      warnings_of_shared_weights(session.executor().persistent(), session.mesh());
  REQUIRE(warnings.size() == 1);
  REQUIRE_THAT(warnings[0], Catch::StartsWith("lm.softmax.w is on stages 0, 3, which add up"));
  const Plan plan = make_plan(session.compiled_step());
  REQUIRE_THAT(
      plan_text(plan),
      Catch::Contains("\npipeline: GPipe, 4 stages, 4 microbatches\n") &&
          Catch::Contains("  ticks                             14 ") &&
          Catch::Contains("  layers of pieces             1 1 1 1 ") &&
          Catch::Contains("  activations held             4 4 4 4 ") &&
          Catch::Contains("  idle                          42.9 % ") &&
          Catch::Contains("\n      0        12         9         0         0   stage 1: 9"));
  REQUIRE_THAT(
      plan_json(plan),
      Catch::Contains("\"pipeline\": {\"schedule\": \"GPipe\", \"stages\": 4, \"chunks\": 1, "
                      "\"microbatches\": 4, \"ticks\": 14, \"layers_of_pieces\": [1, 1, 1, "
                      "1], \"activations_held\": [4, 4, 4, 4], \"idle_fraction\": 0.42857") &&
          Catch::Contains(
              "\"timeline\": [[[\"F0\", 0, 1], [\"F1\", 1, 2], [\"F2\", 2, 3], [\"F3\", 3, 4], "
              "[\"B3\", 13, 15], [\"B2\", 15, 17], [\"B1\", 17, 19], [\"B0\", 19, 21]], "
              "[[\"F0\", 1, 2], "));
}

}  // namespace
}  // namespace tessera
