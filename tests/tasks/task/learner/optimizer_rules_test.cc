// SPDX-License-Identifier: Apache-2.0
// Several optimizers of one model, learning rates by path, and optimizers that average weights, on
// the least-squares model.
#include "tasks/task/learner/optimizer_rules.h"

#include <cmath>

#include "core/base/error.h"
#include "tasks/planner/plan.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/learner/optimizers.h"
#include "tests/support/catch.h"
#include "tests/support/linear_task.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Texts = std::vector<std::string>;

constexpr double kTolerance = 3e-6;  // A few roundings of f32.

void require_step(const std::vector<double>& got, std::vector<double> before,
                  const std::vector<double>& gradient, double rate) {
  REQUIRE(got.size() == before.size());
  for (size_t i = 0; i < got.size(); ++i)
    REQUIRE(got[i] == Approx(before[i] - rate * gradient[i]).margin(kTolerance));
}

OptimizerRule sgd_rule(const std::string& name, const Texts& paths, double rate = 0.3) {
  return {name, paths, Sgd::HParams{.learning_rate = rate}};
}

std::string refusal(const Learner::HParams& learner) {
  SingleTask::HParams p = linear_task();
  p.learner = learner;
  try {
    Template<BaseTask>(p).instantiate();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("each weight is updated by the optimizer of its rule, at that one's learning rate") {
  SingleTask::HParams p = linear_task();
  p.learner.optimizer_rules = {
      {.name = "biases",
       .paths = {"bias"},
       .optimizer_tpl = Sgd::HParams{
           .learning_rate = 0.4,
           .schedule_tpl = PiecewiseConstant::HParams{.boundaries = {1}, .values = {1.0, 0.5}},
           .momentum = 0.9}}};
  LinearTrial trial(p, 8);
  for (const double bias_rate : {0.4, 0.2}) {
    const LinearWeights before = trial.weights();
    const std::vector<double> momentum = trial.read("learner/momentum/bias");
    const StepResult result = trial.step(some_examples(8));
    const LinearStep expected = linear_step(some_examples(8), before);
    REQUIRE(result.learning_rate == 0.1);
    REQUIRE(result.rule_rates ==
            std::map<std::string, double>{{"learning_rate/biases", bias_rate}});
    require_step(trial.read("matrix"), before.matrix, expected.gradient.matrix, 0.1);
    std::vector<double> change = expected.gradient.bias;
    for (size_t i = 0; i < change.size(); ++i) change[i] += 0.9 * momentum[i];
    require_step(trial.read("bias"), before.bias, change, bias_rate);
  }
  REQUIRE_THROWS_WITH(trial.read("learner/momentum/matrix"), "no state learner/momentum/matrix");
}

TEST_CASE("a weight decays by the optimizer of its rule, and masks apply to all") {
  SingleTask::HParams p = linear_task();
  p.learner.optimizer_tpl = {};  // Every weight has a rule.
  p.learner.optimizer_rules = {
      {"a", {"matrix"}, Sgd::HParams{.learning_rate = 0.1, .weight_decay = 0.5}},
      {"b", {"bias"}, Sgd::HParams{.learning_rate = 0.2, .weight_decay = 0.25}}};
  p.learner.weight_decay_exclusion = {"matrix"};
  LinearTrial trial(p, 8);
  const LinearWeights before = trial.weights();
  const LinearStep expected = linear_step(some_examples(8), before);
  const StepResult result = trial.step(some_examples(8));
  REQUIRE(result.learning_rate == 0.1);  // Without other weights, that of the first rule.
  REQUIRE(result.rule_rates.at("learning_rate/b") == 0.2);
  require_step(trial.read("matrix"), before.matrix, expected.gradient.matrix, 0.1);
  std::vector<double> change = expected.gradient.bias;
  for (size_t i = 0; i < change.size(); ++i) change[i] += 0.25 * before.bias[i];
  require_step(trial.read("bias"), before.bias, change, 0.2);
}

TEST_CASE("learning-rate rules multiply the rates of the weights that they match") {
  SingleTask::HParams p = linear_task();
  p.learner.learning_rate_rules = {{{"mat.*"}, 0.5}};
  LinearTrial trial(p, 8);
  const LinearWeights before = trial.weights();
  const LinearStep expected = linear_step(some_examples(8), before);
  REQUIRE(trial.step(some_examples(8)).learning_rate == 0.1);
  require_step(trial.read("matrix"), before.matrix, expected.gradient.matrix, 0.05);
  require_step(trial.read("bias"), before.bias, expected.gradient.bias, 0.1);
}

TEST_CASE("rules that match no weight, or share one, and weights without a rule are listed") {
  const Template<BaseOptimizer> none;
  REQUIRE(
      refusal({.optimizer_rules = {sgd_rule("a", {"biass"})}}) ==
      "learner.optimizer_rules[0].paths: 'biass' matches no parameter; did you mean 'bias'?; it "
      "must match a whole path, such as 'matrix'");
  REQUIRE(refusal({.optimizer_rules = {sgd_rule("a", {"matrix"}), sgd_rule("b", {".*"})}}) ==
          "learner.optimizer_rules: more than one rule matches matrix; at most one may match a "
          "weight: change learner.optimizer_rules[0].paths or learner.optimizer_rules[1].paths");
  REQUIRE(refusal({.optimizer_tpl = none, .optimizer_rules = {sgd_rule("a", {"matrix"})}}) ==
          "learner.optimizer_rules: no rule matches bias, and optimizer_tpl is unset; add a rule, "
          "or set optimizer_tpl, the optimizer of weights without one");
  REQUIRE(refusal({.optimizer_tpl = none,
                   .optimizer_rules = {sgd_rule("a", {"matrix"})},
                   .bprop_variable_exclusion = {"bias"}}) == "");  // It needs no optimizer.
  REQUIRE(refusal({.optimizer_tpl = none}) ==
          "learner.optimizer_tpl is unset, and there are no optimizer_rules; give it a class");
  REQUIRE_THAT(refusal({.learning_rate_rules = {{{"bias"}, 0.5}, {{"b.*"}, 0.1}}}),
               Catch::StartsWith("learner.learning_rate_rules: more than one rule matches bias;"));
  REQUIRE_THAT(refusal({.learning_rate_rules = {{{"x"}, 0.5}}}),
               Catch::StartsWith("learner.learning_rate_rules[0].paths: 'x' matches no parameter"));
}

TEST_CASE(
    "rules without paths, name or optimizer, and multipliers that are not positive, are "
    "refused") {
  REQUIRE_THAT(refusal({.optimizer_rules = {sgd_rule("a", {})}}),
               Catch::StartsWith("learner.optimizer_rules[0].paths is empty; give regular"));
  REQUIRE_THAT(refusal({.optimizer_rules = {sgd_rule("a", {"("})}}),
               Catch::Contains("optimizer_rules[0].paths: '(' is not a regular expression"));
  for (const char* const name : {"", "a/b"})
    REQUIRE_THAT(
        refusal({.optimizer_rules = {sgd_rule(name, {"bias"})}}),
        Catch::StartsWith(fmt::format(
            "learner.optimizer_rules[0].name is '{}', expected a name without '/'", name)));
  REQUIRE_THAT(refusal({.optimizer_rules = {sgd_rule("a", {"bias"}), sgd_rule("a", {"matrix"})}}),
               Catch::StartsWith("learner.optimizer_rules[1].name is 'a', expected"));
  REQUIRE(refusal({.optimizer_rules = {{.name = "a", .paths = {"bias"}}}}) ==
          "learner.optimizer_rules[0].optimizer_tpl is unset; give it a class");
  for (const double multiplier : {0.0, -1.0, std::nan("")})
    REQUIRE_THAT(refusal({.learning_rate_rules = {{{"bias"}, multiplier}}}),
                 Catch::Contains("multiplier is ") && Catch::Contains("expected"));
}

TEST_CASE("evaluation reads the averages of a schedule-free optimizer") {
  SingleTask::HParams p = linear_task();
  p.learner.optimizer_rules = {
      {"free", {"matrix"}, ScheduleFreeAdamW::HParams{.learning_rate = 0.1}}};
  LinearTrial trial(p, 8);
  for (uint64_t seed = 1; seed <= 3; ++seed) trial.step(some_examples(8, seed));
  const LinearWeights averages{trial.read("learner/ema/matrix"), trial.read("learner/ema/bias")};
  REQUIRE(averages.matrix != trial.read("matrix"));
  REQUIRE(averages.bias == trial.read("bias"));  // Its optimizer does not average.
  const LinearExamples examples = some_examples(8, 9);
  const auto evaluated = trial.evaluate(examples);
  REQUIRE(evaluated.at("sum") / evaluated.at("weight") ==
          Approx(linear_step(examples, averages).loss).epsilon(1e-5));

  p.learner.ema_decay = 0.9;
  REQUIRE(refusal(p.learner) ==
          "learner: ema_decay is 0.9, but an optimizer averages the weights itself; set it to 0");
}

TEST_CASE("a run with several optimizers, one schedule-free, resumes bit for bit") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(6);
  Learner::HParams& learner = task_of(config).learner;
  learner.optimizer_tpl = AdamW::HParams{.learning_rate = 1e-3};
  learner.optimizer_rules = {{"free", {".*ffn.*"}, ScheduleFreeAdamW::HParams{}}};
  task_of(config).train.save_interval_steps = 4;
  REQUIRE(run_tiny(config, directory / "whole") == 0);
  REQUIRE(run_tiny(config, directory / "broken") == 0);
  std::filesystem::remove_all(directory / "broken/checkpoints/step_0000000006");
  REQUIRE(run_tiny(config, directory / "broken") == 0);
  REQUIRE(losses_of(directory / "broken") == losses_of(directory / "whole"));
  REQUIRE(numbers_of(directory / "whole", "learning_rate/free") == std::vector<double>(6, 2.5e-3));
}

TEST_CASE("frozen weights take no memory for gradients and state") {
  const auto memory = [](const Texts& frozen) {
    const TemporaryDirectory directory;
    const TinyDevices devices;
    ProcessGroup alone;
    ExperimentConfig config = tiny_config(1);
    task_of(config).learner.bprop_variable_exclusion = frozen;
    Session session(config, {.run_directory = directory.path(), .allocates = false},
                    devices.in_order(), alone);
    std::map<std::string, int64_t> bytes;
    for (const NamedBytes& row : make_plan(session.compiled_step()).memory)
      bytes[row.name] = row.bytes;
    return bytes;
  };
  auto all = memory({}), half = memory({".*ffn.*"});
  REQUIRE(half["parameters"] == all["parameters"]);
  REQUIRE(half["optimizer_state"] < all["optimizer_state"]);
  REQUIRE(half["gradients"] < all["gradients"]);
}

}  // namespace
}  // namespace tessera
