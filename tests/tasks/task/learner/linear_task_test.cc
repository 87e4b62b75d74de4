// SPDX-License-Identifier: Apache-2.0
// The learner on a least-squares model, compared with arithmetic in double precision.
#include "tests/support/linear_task.h"

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/optimizers.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

constexpr double kTolerance = 3e-6;  // A few roundings of f32.

void require_close(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i);
    REQUIRE(got[i] == Approx(expected[i]).margin(kTolerance));
  }
}

std::vector<double> minus(std::vector<double> a, const std::vector<double>& b, double factor) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= factor * b[i];
  return a;
}

TEST_CASE("a step descends the gradient of the weighted mean loss") {
  LinearTrial trial(linear_task(), 8);
  const LinearExamples examples = some_examples(8);
  const LinearWeights before = trial.weights();
  const LinearStep expected = linear_step(examples, before);
  const StepResult result = trial.step(examples);
  REQUIRE(result.loss == Approx(expected.loss).epsilon(kTolerance));
  REQUIRE(result.metrics.at("loss") == Approx(expected.loss).epsilon(kTolerance));
  REQUIRE(result.metrics.at("large") == Approx(28.0 / 12.0));
  REQUIRE(result.grad_norm == Approx(expected.norm()).epsilon(kTolerance));
  REQUIRE(result.learning_rate == 0.1);
  REQUIRE(result.applied);
  require_close(trial.read("matrix"), minus(before.matrix, expected.gradient.matrix, 0.1));
  require_close(trial.read("bias"), minus(before.bias, expected.gradient.bias, 0.1));
}

TEST_CASE(
    "accumulation over microbatches equals the whole batch, for any distribution of weights") {
  for (const int64_t microbatches : {2, 4, 8}) {
    INFO(microbatches << " microbatches");
    SingleTask::HParams p = linear_task();
    LinearTrial whole(p, 8);
    p.train.num_microbatches = microbatches;
    LinearTrial accumulated(p, 8);
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const StepResult a = whole.step(some_examples(8, seed));
      const StepResult b = accumulated.step(some_examples(8, seed));
      REQUIRE(b.loss == Approx(a.loss).epsilon(kTolerance));
      REQUIRE(b.grad_norm == Approx(a.grad_norm).epsilon(kTolerance));
      REQUIRE(b.metrics.at("large") == Approx(a.metrics.at("large")));
    }
    require_close(accumulated.read("matrix"), whole.read("matrix"));
    require_close(accumulated.read("bias"), whole.read("bias"));
  }
}

TEST_CASE("a batch that is not divisible into the microbatches is rejected") {
  SingleTask::HParams p = linear_task();
  p.train.num_microbatches = 3;
  REQUIRE_THROWS_WITH(LinearTrial(p, 8),
                      Catch::Contains("a batch of 8 cannot be divided into 3 microbatches"));
}

TEST_CASE("clipping by global norm scales all gradients by one factor") {
  SingleTask::HParams p = linear_task();
  p.learner.clip_gradient_norm_to_value = 0.25;
  LinearTrial trial(p, 8);
  const LinearWeights before = trial.weights();
  const LinearStep expected = linear_step(some_examples(8), before);
  REQUIRE(expected.norm() > 0.25);
  const StepResult result = trial.step(some_examples(8));
  REQUIRE(result.grad_norm == Approx(expected.norm()).epsilon(kTolerance));
  const double scale = 0.25 / expected.norm();
  require_close(trial.read("matrix"), minus(before.matrix, expected.gradient.matrix, 0.1 * scale));
  require_close(trial.read("bias"), minus(before.bias, expected.gradient.bias, 0.1 * scale));
}

TEST_CASE("gradients with a norm below the limit are unchanged") {
  SingleTask::HParams p = linear_task();
  p.learner.clip_gradient_norm_to_value = 1e6;
  LinearTrial clipped(p, 8), free(linear_task(), 8);
  clipped.step(some_examples(8));
  free.step(some_examples(8));
  REQUIRE(clipped.read("matrix") == free.read("matrix"));
}

TEST_CASE("clipping by each tensor's norm leaves small tensors unchanged") {
  SingleTask::HParams p = linear_task();
  LinearTrial trial(p, 8);
  const LinearWeights before = trial.weights();
  const LinearStep expected = linear_step(some_examples(8), before);
  const auto norm = [](const std::vector<double>& values) {
    double squares = 0.0;
    for (const double value : values) squares += value * value;
    return std::sqrt(squares);
  };
  const double matrix = norm(expected.gradient.matrix), bias = norm(expected.gradient.bias);
  const double limit = 0.5 * (matrix + bias);  // Between the two norms.
  p.learner.clip_gradient_single_norm_to_value = limit;
  LinearTrial clipped(p, 8);
  clipped.step(some_examples(8));
  require_close(clipped.read("matrix"), minus(before.matrix, expected.gradient.matrix,
                                              0.1 * std::min(1.0, limit / matrix)));
  require_close(clipped.read("bias"),
                minus(before.bias, expected.gradient.bias, 0.1 * std::min(1.0, limit / bias)));
}

TEST_CASE("masks select the parameters that decay and those that are trained") {
  SingleTask::HParams p = linear_task();
  p.learner.optimizer_tpl = Sgd::HParams{.learning_rate = 0.1, .weight_decay = 0.5};
  const LinearExamples examples = some_examples(8);
  LinearTrial plain(linear_task(), 8);
  const LinearWeights before = plain.weights();
  plain.step(examples);
  const LinearWeights undecayed = plain.weights();

  SECTION("decay applies to all parameters") {
    LinearTrial trial(p, 8);
    trial.step(examples);
    require_close(trial.read("bias"), minus(undecayed.bias, before.bias, 0.05));
    require_close(trial.read("matrix"), minus(undecayed.matrix, before.matrix, 0.05));
  }
  SECTION("weight_decay_exclusion excludes parameters by name") {
    p.learner.weight_decay_exclusion = {"mat.*"};
    LinearTrial trial(p, 8);
    trial.step(examples);
    require_close(trial.read("bias"), minus(undecayed.bias, before.bias, 0.05));
    require_close(trial.read("matrix"), undecayed.matrix);
  }
  SECTION("skip_lp_1d_vectors excludes vectors") {
    p.learner.skip_lp_1d_vectors = true;
    LinearTrial trial(p, 8);
    trial.step(examples);
    require_close(trial.read("bias"), undecayed.bias);
    require_close(trial.read("matrix"), minus(undecayed.matrix, before.matrix, 0.05));
  }
  SECTION("a frozen parameter has no update, no state, and no part in the norm") {
    p.learner.bprop_variable_exclusion = {"matrix"};
    p.learner.optimizer_tpl = AdamW::HParams{};
    LinearTrial trial(p, 8);
    const StepResult result = trial.step(examples);
    require_close(trial.read("matrix"), before.matrix);
    REQUIRE(trial.read("bias") != before.bias);
    REQUIRE_THROWS_WITH(trial.read("learner/m/matrix"), "no state learner/m/matrix");
    LinearStep expected = linear_step(examples, before);
    expected.gradient.matrix.clear();
    REQUIRE(result.grad_norm == Approx(expected.norm()).epsilon(kTolerance));
  }
  SECTION("bprop_variable_inclusion freezes all other parameters") {
    p.learner.bprop_variable_inclusion = {"bias"};
    LinearTrial trial(p, 8);
    trial.step(examples);
    require_close(trial.read("matrix"), before.matrix);
    REQUIRE(trial.read("bias") != before.bias);
  }
}

TEST_CASE("a step with a non-finite gradient changes only the counters") {
  for (const double poison :
       {std::nan(""), std::numeric_limits<double>::infinity(), 1e30 /* its square overflows */}) {
    INFO("value " << poison);
    SingleTask::HParams p = linear_task();
    p.learner.optimizer_tpl = AdamW::HParams{};
    p.learner.ema_decay = 0.9;
    LinearTrial trial(p, 8), clean(p, 8);
    const LinearExamples good = some_examples(8);
    LinearExamples bad = some_examples(8, 2);
    bad.x[4] = poison;

    REQUIRE(trial.step(good).skipped == 0);
    StepResult result = trial.step(bad);
    REQUIRE_FALSE(result.applied);
    REQUIRE(result.skipped == 1);
    REQUIRE(result.skipped_in_a_row == 1);
    result = trial.step(bad);
    REQUIRE(result.skipped_in_a_row == 2);
    result = trial.step(good);
    REQUIRE(result.applied);
    REQUIRE(result.skipped == 2);
    REQUIRE(result.skipped_in_a_row == 0);

    clean.step(good);
    clean.step(good);
    for (const char* name : {"matrix", "bias", "learner/m/matrix", "learner/v/bias",
                             "learner/ema/matrix", "learner/count"})
      REQUIRE(trial.read(name) == clean.read(name));
  }
}

TEST_CASE("a step above the given gradient norm is skipped") {
  SingleTask::HParams p = linear_task();
  p.learner.skip_step_gradient_norm_value = 1e-3;
  LinearTrial trial(p, 8);
  const LinearWeights before = trial.weights();
  REQUIRE_FALSE(trial.step(some_examples(8)).applied);
  REQUIRE(trial.read("matrix") == before.matrix);
}

TEST_CASE("with skip_nonfinite_steps off, a non-finite gradient is applied") {
  SingleTask::HParams p = linear_task();
  p.learner.skip_nonfinite_steps = false;
  LinearTrial trial(p, 8);
  LinearExamples bad = some_examples(8);
  bad.y[2] = std::nan("");
  REQUIRE(trial.step(bad).applied);
  REQUIRE(std::isnan(trial.read("bias")[0]));
}

TEST_CASE("averaged weights follow the weights, and evaluation reads them") {
  SingleTask::HParams p = linear_task();
  p.learner.ema_decay = 0.75;
  LinearTrial trial(p, 8);
  LinearWeights average = trial.weights();  // Initialised with the weights.
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    trial.step(some_examples(8, seed));
    const LinearWeights now = trial.weights();
    for (size_t i = 0; i < now.matrix.size(); ++i)
      average.matrix[i] = 0.75 * average.matrix[i] + 0.25 * now.matrix[i];
    for (size_t i = 0; i < now.bias.size(); ++i)
      average.bias[i] = 0.75 * average.bias[i] + 0.25 * now.bias[i];
  }
  require_close(trial.read("learner/ema/matrix"), average.matrix);
  const LinearExamples examples = some_examples(8, 9);
  const auto evaluated = trial.evaluate(examples);
  REQUIRE(evaluated.at("weight") == 12.0);
  REQUIRE(evaluated.at("sum") / evaluated.at("weight") ==
          Approx(linear_step(examples, average).loss).epsilon(1e-5));
}

TEST_CASE("norms of each parameter and gradient are computed on request") {
  SingleTask::HParams p = linear_task();
  LinearTrial without(p, 8);
  REQUIRE(without.step(some_examples(8)).parameter_norms.empty());
  p.train.parameter_norms = true;
  LinearTrial trial(p, 8);
  const LinearWeights before = trial.weights();
  const StepResult result = trial.step(some_examples(8));
  REQUIRE(result.parameter_norms.size() == 4);
  LinearStep expected = linear_step(some_examples(8), before);
  expected.gradient.bias.clear();
  REQUIRE(result.parameter_norms.at("gradient_norm/matrix") ==
          Approx(expected.norm()).epsilon(kTolerance));
  REQUIRE(result.parameter_norms.at("parameter_norm/bias") ==
          Approx(std::hypot(before.bias[0], before.bias[1])).epsilon(kTolerance));
}

TEST_CASE("a learner rejects invalid settings") {
  const auto message = [](const Learner::HParams& learner) {
    SingleTask::HParams p = linear_task();
    p.learner = learner;
    try {
      LinearTrial trial(p, 8);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  REQUIRE_THAT(message({.weight_decay_exclusion = {"biass"}}),
               Catch::Contains("'biass' matches no parameter; did you mean 'bias'?"));
  REQUIRE_THAT(message({.bprop_variable_exclusion = {"("}}),
               Catch::Contains("bprop_variable_exclusion: '(' is not a regular expression"));
  REQUIRE_THAT(message({.bprop_variable_exclusion = {".*"}}),
               Catch::Contains("every parameter is frozen"));
  REQUIRE_THAT(
      message({.clip_gradient_norm_to_value = 1.0, .clip_gradient_single_norm_to_value = 1.0}),
      Catch::Contains("exclude each other"));
}

}  // namespace
}  // namespace tessera
