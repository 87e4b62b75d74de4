// SPDX-License-Identifier: Apache-2.0
// Steps that are judged by the mean and deviation of those before, compared with arithmetic in
// double precision.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/error.h"
#include "tasks/task/learner/learner.h"
#include "tests/support/catch.h"
#include "tests/support/linear_task.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

constexpr int64_t kWindow = 6;

// How many deviations `value` is above the last kWindow of `past`.
double deviations_above(const Values& past, double value) {
  if (past.size() < kWindow / 2) return 0.0;
  const Values last(past.end() - std::min<int64_t>(kWindow, std::ssize(past)), past.end());
  const auto count = static_cast<double>(last.size());
  double mean = 0.0, squares = 0.0;
  for (const double each : last) mean += each / count;
  for (const double each : last) squares += (each - mean) * (each - mean) / count;
  return (value - mean) / std::max(std::sqrt(squares), 1e-6);
}

SingleTask::HParams windowed_task(double skip, double spike = 0.0) {
  SingleTask::HParams p = linear_task();
  p.learner.skip_step_deviations = skip;
  p.learner.spike_deviations = spike;
  p.learner.skip_step_window = kWindow;
  return p;
}

// Labels of some steps are large, so that their losses are; one has labels that are not finite.
LinearExamples examples_of(uint64_t step) {
  LinearExamples examples = some_examples(8, 1 + step % 5);
  const double factor = step == 9 || step == 10 ? 30.0 : step == 17 ? 1e12 : 1.0;
  for (double& y : examples.y) y *= factor;
  if (step == 13) examples.y[2] = std::nan("");
  return examples;
}

TEST_CASE("a step far above the mean of those before is skipped, by loss or gradient norm") {
  LinearTrial trial(windowed_task(4.0), 8);
  Values losses, norms;
  std::vector<uint64_t> skipped;
  for (uint64_t step = 0; step < 30; ++step) {
    INFO("step " << step);
    const LinearWeights before = trial.weights();
    const StepResult result = trial.step(examples_of(step));
    const bool is_finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
    if (is_finite) {
      const double loss = deviations_above(losses, result.loss);
      const double norm = deviations_above(norms, result.grad_norm);
      REQUIRE(result.metrics.at("loss_deviations") == Approx(loss).epsilon(1e-3).margin(1e-3));
      REQUIRE(result.metrics.at("grad_norm_deviations") == Approx(norm).epsilon(1e-3).margin(1e-3));
      REQUIRE(result.applied == (loss <= 4.0 && norm <= 4.0));
      losses.push_back(result.loss);
      norms.push_back(result.grad_norm);
    }
    if (!result.applied) skipped.push_back(step);
    REQUIRE((trial.weights().matrix == before.matrix) == !result.applied);
    REQUIRE(result.skipped == std::ssize(skipped));
  }
  // After the first large step the deviation is large, too, so the second is applied.
  REQUIRE(skipped == std::vector<uint64_t>{9, 13, 17});
  REQUIRE(trial.read("learner/window_steps") == Values{kWindow});
  Values newest(losses.rbegin(), losses.rbegin() + kWindow);
  REQUIRE(trial.read("learner/window_losses") == newest);
}

TEST_CASE("a window that only reports changes no weight, and without one there is no state") {
  LinearTrial plain(linear_task(), 8), reports(windowed_task(0.0, 2.0), 8);
  for (uint64_t step = 0; step < 12; ++step) {
    const StepResult expected = plain.step(examples_of(step));
    const StepResult got = reports.step(examples_of(step));
    REQUIRE(got.applied);
    REQUIRE(got.loss == expected.loss);
    REQUIRE(got.metrics.contains("loss_deviations"));
    REQUIRE_FALSE(expected.metrics.contains("loss_deviations"));
  }
  REQUIRE(plain.read("matrix") == reports.read("matrix"));
  REQUIRE_THROWS_WITH(plain.read("learner/window_steps"), Catch::Contains("no state"));
}

TEST_CASE("settings of the window have ranges") {
  const auto refused = [](SingleTask::HParams p, const char* message) {
    REQUIRE_THROWS_WITH(Template<BaseTask>(p).instantiate(), Catch::Contains(message));
  };
  refused(windowed_task(-1.0), "skip_step_deviations is -1.0, expected at least 0");
  refused(windowed_task(std::nan("")), "skip_step_deviations is nan");
  refused(windowed_task(0.0, -1.0), "spike_deviations is -1.0, expected at least 0");
  SingleTask::HParams one = windowed_task(6.0);
  one.learner.skip_step_window = 1;
  refused(one, "skip_step_window is 1, expected");
}

}  // namespace
}  // namespace tessera
