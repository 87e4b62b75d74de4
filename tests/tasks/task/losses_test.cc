// SPDX-License-Identifier: Apache-2.0
// Training on several losses: the weighted sum of the means of metrics, compared with arithmetic in
// double precision.
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/linear_task.h"

namespace tessera {
namespace {

using Losses = std::map<std::string, double>;
constexpr double kTolerance = 3e-6;

// A linear model with the loss of LinearModel, and the squares of its predictions as metrics: as a
// mean over examples (`size`), and with the weights of the loss (`weighted_size`).
class SizedModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = SizedModel;
    static constexpr std::string_view kName = "SizedModel";
    Field<DTypePolicy> dtypes;
    FIELDS(dtypes)
  };
  explicit SizedModel(const HParams& p)
      : BaseModel({.dtypes = p.dtypes}),
        matrix_(weight("matrix",
                       {{"embed", LinearModel::kInputs, {}}, {"mlp", LinearModel::kOutputs, {}}},
                       {InitKind::kGaussian, 1.0})),
        bias_(weight("bias", {{"mlp", LinearModel::kOutputs, {}}}, {InitKind::kGaussian, 1.0})) {}

 private:
  ModelOutput fprop(const Features& features) const override {
    const Tensor weights = features.get("weights"), predicted = fprop_logits(features);
    const Tensor errors = reduce_sum(square(features.get("y") - predicted), "mlp");
    const Tensor sizes = reduce_sum(square(predicted), "mlp");
    const Tensor count = reduce_sum(weights);
    add_loss("bias_size", reduce_sum(square(param(bias_))));
    return {{reduce_sum(errors * weights), count},
            {{"size", {reduce_sum(sizes), reduce_sum(weights * 0.0 + 1.0)}},
             {"weighted_size", {reduce_sum(sizes * weights), count}},
             {"fixed", {reduce_sum(stop_gradient(sizes)), count}}}};
  }
  Tensor fprop_logits(const Features& features) const override {
    return einsum(features.get("x"), param(matrix_), over("embed")) + param(bias_);
  }

  Weight matrix_, bias_;
};

SingleTask::HParams task_with(const Losses& losses, int64_t microbatches = 1) {
  SingleTask::HParams p = linear_task();
  p.model = SizedModel::HParams{};
  p.losses = losses;
  p.train.num_microbatches = microbatches;
  return p;
}

// The squares of predictions are errors of labels 0.
LinearStep size_step(LinearExamples examples, const LinearWeights& weights, bool weighted) {
  for (double& y : examples.y) y = 0.0;
  if (!weighted)
    for (double& weight : examples.weights) weight = 1.0;
  return linear_step(examples, weights);
}

// Trains one step and compares loss and weights with those of these losses.
void require_step(const Losses& losses, int64_t microbatches) {
  LinearTrial trial(task_with(losses, microbatches), 8);
  const LinearExamples examples = some_examples(8);
  const LinearWeights before = trial.weights();
  LinearStep aux{0.0, {std::vector<double>(before.matrix.size(), 0.0), before.bias}};
  for (double& bias : aux.gradient.bias) {
    aux.loss += bias * bias;
    bias *= 2.0;
  }
  const std::map<std::string, LinearStep> steps = {
      {"loss", linear_step(examples, before)},
      {"size", size_step(examples, before, false)},
      {"weighted_size", size_step(examples, before, true)},
      {"aux_loss", aux},
      {"bias_size", aux}};
  double loss = 0.0;
  LinearWeights expected = before;
  for (const auto& [name, factor] : losses) {
    const LinearStep& step = steps.at(name);
    loss += factor * step.loss;
    for (size_t i = 0; i < expected.matrix.size(); ++i)
      expected.matrix[i] -= 0.1 * factor * step.gradient.matrix[i];
    for (size_t i = 0; i < expected.bias.size(); ++i)
      expected.bias[i] -= 0.1 * factor * step.gradient.bias[i];
  }
  REQUIRE(trial.step(examples).loss == Approx(loss).epsilon(kTolerance));
  for (size_t i = 0; i < expected.matrix.size(); ++i)
    REQUIRE(trial.read("matrix")[i] == Approx(expected.matrix[i]).margin(kTolerance));
  for (size_t i = 0; i < expected.bias.size(); ++i)
    REQUIRE(trial.read("bias")[i] == Approx(expected.bias[i]).margin(kTolerance));
  // Evaluation has the model's own loss.
  const auto scores = trial.evaluate(examples);
  REQUIRE(scores.at("sum") / scores.at("weight") ==
          Approx(linear_step(examples, trial.weights()).loss).epsilon(kTolerance));
}

TEST_CASE("training takes the gradient of the weighted sum of the means of metrics") {
  require_step({{"loss", 1.0}, {"aux_loss", 1.0}}, 1);
  require_step({{"loss", 0.5}, {"size", 0.25}}, 1);
  require_step({{"weighted_size", 2.0}, {"size", -0.5}, {"bias_size", 0.1}}, 1);
  for (const int64_t microbatches : {2, 4})
    require_step({{"loss", 0.7}, {"weighted_size", 0.3}, {"aux_loss", 0.2}}, microbatches);
}

TEST_CASE("losses without a metric, without a gradient or without the loss's weights are refused") {
  const auto refused = [](const Losses& losses, int64_t microbatches, const char* message) {
    REQUIRE_THROWS_WITH(LinearTrial(task_with(losses, microbatches), 8), Catch::Contains(message));
  };
  refused({{"sise", 1.0}}, 1, "the model has no metric 'sise'; did you mean 'size'?");
  refused({{"loss", 1.0}, {"fixed", 1.0}}, 1, "the metric 'fixed' has no gradient");
  refused({{"loss", 1.0}, {"size", 1.0}}, 2,
          "'size' is not a mean with the weight of the model's loss");
}

}  // namespace
}  // namespace tessera
