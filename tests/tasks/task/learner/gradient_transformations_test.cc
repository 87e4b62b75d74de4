// SPDX-License-Identifier: Apache-2.0
// Gradient transformations on the least-squares model, and one of a plugin.
#include "tasks/task/learner/gradient_transformations.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "tests/support/catch.h"
#include "tests/support/linear_task.h"

namespace tessera {
namespace {

using Values = std::vector<double>;
using List = std::vector<Template<BaseGradientTransformation>>;

constexpr double kTolerance = 3e-6;  // A few roundings of f32.

// The gradients that the optimizer gets in the first step, and the step's report.
struct FirstStep {
  Values matrix, bias;
  StepResult result;
};
FirstStep first_step(Learner::HParams learner, const List& list) {
  SingleTask::HParams p = linear_task();
  learner.optimizer_tpl = p.learner.optimizer_tpl;
  learner.gradient_transformations_tpl = list;
  p.learner = learner;
  LinearTrial trial(p, 8);
  const LinearWeights before = trial.weights();
  FirstStep step{.result = trial.step(some_examples(8))};
  const auto change = [](const Values& a, const Values& b) {
    Values difference;
    for (size_t i = 0; i < a.size(); ++i) difference.push_back((a[i] - b[i]) / 0.1);
    return difference;
  };
  step.matrix = change(before.matrix, trial.read("matrix"));
  step.bias = change(before.bias, trial.read("bias"));
  return step;
}

void require_close(const Values& got, const Values& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    REQUIRE(got[i] == Approx(expected[i]).epsilon(1e-5).margin(10 * kTolerance));
}

TEST_CASE("clipping as a transformation is that of the learner's fields") {
  const FirstStep plain = first_step({}, {});
  const double norm = plain.result.grad_norm;
  const FirstStep whole = first_step({}, {ClipGradientNorm::HParams{.max_norm = norm / 3}});
  const FirstStep field = first_step({.clip_gradient_norm_to_value = norm / 3}, {});
  REQUIRE(whole.result.grad_norm == norm);  // Before clipping.
  require_close(whole.matrix, field.matrix);
  require_close(whole.bias, field.bias);
  const double limit = std::hypot(plain.bias[0], plain.bias[1]) / 2;
  const FirstStep each =
      first_step({}, {ClipGradientNorm::HParams{.max_norm = limit, .each_tensor = true}});
  const FirstStep each_field = first_step({.clip_gradient_single_norm_to_value = limit}, {});
  require_close(each.matrix, each_field.matrix);
  require_close(each.bias, each_field.bias);
}

TEST_CASE("transformations run in order, after the learner's own clipping") {
  const FirstStep plain = first_step({}, {});
  const double norm = plain.result.grad_norm;
  const FirstStep step = first_step(
      {.clip_gradient_norm_to_value = norm / 2},
      {ClipGradientValue::HParams{.limit = 0.1}, ClipGradientNorm::HParams{.max_norm = 0.05}});
  Values expected = plain.matrix;
  expected.insert(expected.end(), plain.bias.begin(), plain.bias.end());
  double squares = 0.0;
  for (double& g : expected) squares += std::pow(g = std::clamp(g / 2, -0.1, 0.1), 2);
  for (double& g : expected) g *= std::min(1.0, 0.05 / std::sqrt(squares));
  Values got = step.matrix;
  got.insert(got.end(), step.bias.begin(), step.bias.end());
  require_close(got, expected);
}

TEST_CASE("centring subtracts the mean over inputs from matrices, and leaves vectors") {
  const FirstStep plain = first_step({}, {});
  const FirstStep centred = first_step({}, {CentralizeGradient::HParams{}});
  require_close(centred.bias, plain.bias);
  Values expected = plain.matrix;  // [inputs outputs]
  constexpr size_t kIn = LinearModel::kInputs, kOut = LinearModel::kOutputs;
  for (size_t out = 0; out < kOut; ++out) {
    double mean = 0.0;
    for (size_t in = 0; in < kIn; ++in) mean += plain.matrix[in * kOut + out] / kIn;
    for (size_t in = 0; in < kIn; ++in) expected[in * kOut + out] -= mean;
  }
  require_close(centred.matrix, expected);
}

TEST_CASE("noise is proportional to its scale, differs between elements, and decays") {
  const FirstStep plain = first_step({}, {});
  const auto noise = [&](double scale) {
    const FirstStep noisy = first_step({}, {GradientNoise::HParams{.scale = scale}});
    Values values;
    for (size_t i = 0; i < plain.matrix.size(); ++i)
      values.push_back((noisy.matrix[i] - plain.matrix[i]) / scale);
    for (size_t i = 0; i < plain.bias.size(); ++i)
      values.push_back((noisy.bias[i] - plain.bias[i]) / scale);
    return values;
  };
  const Values one = noise(1.0);
  require_close(noise(10.0), one);
  for (size_t i = 0; i < one.size(); ++i)
    for (size_t j = 0; j < i; ++j) REQUIRE(std::abs(one[i] - one[j]) > 1e-4);

  // After an update this noise has the deviation 2^-50.
  SingleTask::HParams p = linear_task();
  p.learner.gradient_transformations_tpl = {GradientNoise::HParams{.scale = 1.0, .decay = 100.0}};
  LinearTrial trial(p, 8);
  trial.step(some_examples(8));
  const LinearWeights before = trial.weights();
  const StepResult second = trial.step(some_examples(8));
  double squares = 0.0;
  const LinearWeights after = trial.weights();
  for (size_t i = 0; i < before.matrix.size(); ++i)
    squares += std::pow((after.matrix[i] - before.matrix[i]) / 0.1, 2);
  for (size_t i = 0; i < before.bias.size(); ++i)
    squares += std::pow((after.bias[i] - before.bias[i]) / 0.1, 2);
  REQUIRE(std::sqrt(squares) == Approx(second.grad_norm).epsilon(1e-4));
}

// Skips all steps, or does what it must not.
class Odd final : public BaseGradientTransformation {
 public:
  struct HParams {
    using Instance = Odd;
    static constexpr std::string_view kName = "Odd";
    int64_t what = 0;
    FIELDS(what)
  };
  explicit Odd(const HParams& p) : what_(p.what) {}
  void transform(GradientStep& step) const override {
    const Tensor zero = constant(0.0, DType::kF32);
    if (what_ == 0) step.apply = less(zero, zero);
    if (what_ == 1) step.weights[0].gradient = zero;
    if (what_ == 2) step.weights.pop_back();
    if (what_ == 3) step.apply = Tensor();
  }

 private:
  int64_t what_;
};

TEST_CASE("a transformation may skip a step, and must keep the gradients' number and types") {
  const FirstStep skipped = first_step({}, {Odd::HParams{}});
  REQUIRE_FALSE(skipped.result.applied);
  REQUIRE(skipped.result.skipped == 1);
  REQUIRE(*std::ranges::max_element(skipped.matrix) == 0.0);
  const auto refused = [](int64_t what, const std::string& message) {
    REQUIRE_THROWS_WITH(first_step({}, {Odd::HParams{what}}), Catch::Contains(message));
  };
  refused(1, "left the gradient of matrix f32[\"\"], expected f32[\"");
  refused(2, "left 1 gradients of 2");
  refused(3, "left `apply` without a value, expected bool");
  REQUIRE_THROWS_WITH(first_step({}, {ClipGradientNorm::HParams{.max_norm = 0.0}}),
                      Catch::Contains("max_norm is 0.0, expected above 0"));
}

}  // namespace
}  // namespace tessera
