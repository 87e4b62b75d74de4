// SPDX-License-Identifier: Apache-2.0
// Noise on the weights of training: its distribution, and that clean weights are updated with the
// gradient at noisy ones.
#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tasks/task/learner/optimizers.h"
#include "tests/support/catch.h"
#include "tests/support/linear_task.h"

namespace tessera {
namespace {

using Values = std::vector<double>;
constexpr double kTolerance = 3e-6;

// Half the sum of squares of a weight `matrix` that begins at zero: a gradient is the weight that
// the loss is computed at, so a step of size 1 leaves the negative noise.
class HalfSquares final : public BaseModel {
 public:
  struct HParams {
    using Instance = HalfSquares;
    static constexpr std::string_view kName = "HalfSquares";
    int64_t inputs = LinearModel::kInputs, outputs = LinearModel::kOutputs;
    Field<DTypePolicy> dtypes;
    FIELDS(inputs, outputs, dtypes)
  };
  explicit HalfSquares(const HParams& p)
      : BaseModel({.dtypes = p.dtypes}),
        matrix_(weight("matrix", {{"embed", p.inputs, {}}, {"mlp", p.outputs, {}}}, zeros())) {}

 private:
  ModelOutput fprop(const Features& features) const override {
    const Tensor unused = reduced(reduce_sum(features.get("weights"))) * 0.0;
    return {{reduce_sum(square(param(matrix_))) * 0.5 + unused, constant(1.0, DType::kF32)}, {}};
  }
  Tensor fprop_logits(const Features&) const override { return param(matrix_); }

  Weight matrix_;
};

// The noise of each of the first `steps` steps.
std::vector<Values> noise_of(const VariationalNoise& p, const HalfSquares::HParams& model,
                             int64_t steps, int64_t seed = 1234) {
  SingleTask::HParams task{.model = model,
                           .learner = {.optimizer_tpl = Sgd::HParams{.learning_rate = 1.0}},
                           .variational_noise = p};
  task.train.seed = seed;
  LinearTrial trial(task, 8);
  std::vector<Values> noise;
  for (int64_t step = 0; step < steps; ++step) {
    trial.step(some_examples(8));
    noise.push_back(trial.read("matrix"));
    for (double& each : noise.back()) each = -each;
  }
  return noise;
}

TEST_CASE("noise is normal, differs by step and seed, and begins at start_step") {
  const HalfSquares::HParams model{.inputs = 100, .outputs = 200};
  const VariationalNoise p{.scale = 0.5, .start_step = 1};
  const std::vector<Values> noise = noise_of(p, model, 3);
  REQUIRE(noise[0] == Values(20000, 0.0));
  constexpr double kCount = 20000.0;
  double mean = 0.0, squares = 0.0, fourth = 0.0, beyond = 0.0;
  for (const double each : noise[1]) {
    const double x = each / p.scale;
    mean += x / kCount;
    squares += x * x / kCount;
    fourth += x * x * x * x / kCount;
    beyond += std::abs(x) > 1.959964 ? 1.0 / kCount : 0.0;
  }
  // Within four deviations of each estimate.
  REQUIRE(std::abs(mean) < 4.0 * std::sqrt(1.0 / kCount));
  REQUIRE(std::abs(squares - 1.0) < 4.0 * std::sqrt(2.0 / kCount));
  REQUIRE(std::abs(fourth - 3.0) < 4.0 * std::sqrt(96.0 / kCount));
  REQUIRE(std::abs(beyond - 0.05) < 4.0 * std::sqrt(0.05 * 0.95 / kCount));
  REQUIRE(noise[2] != noise[1]);
  REQUIRE(noise_of(p, model, 3) == noise);
  REQUIRE(noise_of(p, model, 2, 8)[1] != noise[1]);
}

TEST_CASE("the gradient is that at noisy weights, in all microbatches, and changes clean ones") {
  const VariationalNoise p{.scale = 0.3, .weights = {"mat.*"}};
  const Values noise = noise_of(p, {}, 1)[0];
  for (const int64_t microbatches : {1, 4}) {
    SingleTask::HParams task = linear_task();
    task.variational_noise = p;
    task.train.num_microbatches = microbatches;
    LinearTrial trial(task, 8);
    const LinearWeights clean = trial.weights();
    LinearWeights noisy = clean;
    for (size_t i = 0; i < noise.size(); ++i) noisy.matrix[i] += noise[i];
    const LinearExamples examples = some_examples(8);
    const LinearStep expected = linear_step(examples, noisy);
    const StepResult result = trial.step(examples);
    REQUIRE(result.loss == Approx(expected.loss).epsilon(kTolerance));
    REQUIRE(result.grad_norm == Approx(expected.norm()).epsilon(kTolerance));
    for (size_t i = 0; i < noise.size(); ++i)
      REQUIRE(trial.read("matrix")[i] ==
              Approx(clean.matrix[i] - 0.1 * expected.gradient.matrix[i]).margin(kTolerance));
    // Evaluation has no noise.
    const auto scores = trial.evaluate(examples);
    REQUIRE(scores.at("sum") / scores.at("weight") ==
            Approx(linear_step(examples, trial.weights()).loss).epsilon(kTolerance));
  }
}

TEST_CASE("patterns of noisy weights that match nothing, and a negative scale, are refused") {
  SingleTask::HParams p = linear_task();
  p.variational_noise = {.scale = 0.3, .weights = {"matrx"}};
  REQUIRE_THROWS_WITH(LinearTrial(p, 8),
                      Catch::Contains("variational_noise.weights: 'matrx' matches no parameter; "
                                      "did you mean 'matrix'?"));
  p.variational_noise = {.scale = -1.0};
  REQUIRE_THROWS_WITH(Template<BaseTask>(p).instantiate(),
                      Catch::Contains("scale is -1.0, expected at least 0"));
}

}  // namespace
}  // namespace tessera
