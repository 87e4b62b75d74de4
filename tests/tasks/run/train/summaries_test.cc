// SPDX-License-Identifier: Apache-2.0
// Auxiliary losses and metrics of layers in runs: in metrics.jsonl, in evaluation, over
// microbatches and on meshes.
#include <cmath>
#include <set>

#include "core/base/error.h"
#include "core/io/json.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "layers/models/language_model.h"
#include "tasks/testing/tested_layer.h"
#include "tests/support/catch.h"
#include "tests/support/linear_task.h"
#include "tests/support/reporting_layer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Catch::Contains;

constexpr int64_t kLayers = 2;
const std::vector<std::string> kReported = {"squares", "positive", "load_min", "load_mean",
                                            "load_max"};

struct Setting {
  bool repeated = false;
  int64_t microbatches = 1;
  std::vector<int64_t> mesh = {1, 1, 1};
  Strategy strategy = Strategy::kReplicas;
  std::string remat = "save_everything";
};

const TransformerBlock::HParams kBlock{.ffn_tpl = ReportingFeedForward::HParams{}};

// A tiny run whose feed-forward layers report. It evaluates at the end.
ExperimentConfig reporting_config(const Setting& setting) {
  ExperimentConfig config = tiny_config(3);
  SingleTask::HParams& task = task_of(config);
  auto& lm = task.model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
  lm.num_layers = kLayers;
  lm.stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = kBlock};
  if (setting.repeated) lm.stacked_transformer_tpl = Repeated::HParams{.block_tpl = kBlock};
  task.train.num_microbatches = setting.microbatches;
  task.train.remat_policy = setting.remat;
  task.train.eval_interval_steps = 3;
  config.mesh.ici_mesh_shape = setting.mesh;
  config.rules = strategy_rules(setting.strategy);
  return config;
}

// The values of metrics.jsonl by name, of all lines in order, without times and events.
std::map<std::string, std::vector<double>> logged(const Setting& setting) {
  const TemporaryDirectory directory;
  RunWith options;
  options.devices = setting.mesh[0] * setting.mesh[1] * setting.mesh[2];
  REQUIRE(run_tiny(reporting_config(setting), directory.path(), options) == 0);
  std::set<std::string> names = {"loss", "log_pplx", "grad_norm", "aux_loss"};
  for (const std::string& name : kReported) {
    names.insert(name);
    for (int64_t i = 0; i < kLayers; ++i)
      names.insert(fmt::format("lm.transformer.x_layers[{}].ffn.{}", i, name));
  }
  std::map<std::string, std::vector<double>> values;
  for (const std::string& name : names) {
    values[name] = numbers_of(directory.path(), name);
    if (name != "grad_norm")
      values["eval/validation/" + name] = numbers_of(directory.path(), "eval/validation/" + name);
  }
  return values;
}

TEST_CASE("metrics.jsonl has what layers add, of each layer and of all together") {
  const auto values = logged({});
  const auto at = [&](const std::string& name, size_t step) { return values.at(name).at(step); };
  for (const auto& [name, numbers] : values) {
    INFO(name);
    REQUIRE(numbers.size() == (name.starts_with("eval/") ? 1 : 3));
  }
  const std::string first = "lm.transformer.x_layers[0].ffn.",
                    second = "lm.transformer.x_layers[1].ffn.";
  for (size_t step = 0; step < 3; ++step) {
    REQUIRE(at(first + "squares", step) != at(second + "squares", step));
    const double sum = at(first + "squares", step) + at(second + "squares", step);
    REQUIRE(at("squares", step) == Approx(sum / 2.0));
    REQUIRE(at("aux_loss", step) == Approx(sum));
    REQUIRE(at("loss", step) == Approx(at("log_pplx", step) + sum));
    REQUIRE(at("load_min", step) ==
            std::min(at(first + "load_min", step), at(second + "load_min", step)));
    REQUIRE(at("load_max", step) ==
            std::max(at(first + "load_max", step), at(second + "load_max", step)));
    REQUIRE(at("load_min", step) < at("load_mean", step));
    REQUIRE(at("load_mean", step) < at("load_max", step));
    REQUIRE(at("load_mean", step) ==
            Approx((at(first + "load_mean", step) + at(second + "load_mean", step)) / 2.0));
  }
  REQUIRE(at("eval/validation/aux_loss", 0) > 0.0);
  REQUIRE(at("eval/validation/loss", 0) == at("eval/validation/log_pplx", 0));
}

TEST_CASE("what layers add is the same in a loop, over microbatches and on meshes") {
  const auto expected = logged({});
  const Setting settings[] = {
      {.repeated = true},
      {.microbatches = 2},
      {.repeated = true, .microbatches = 4, .remat = "save_nothing"},
      {.mesh = {1, 2, 2}, .strategy = Strategy::kTensor},
      {.repeated = true, .mesh = {1, 2, 2}, .strategy = Strategy::kTensor},
      {.repeated = true, .mesh = {1, 4, 1}, .strategy = Strategy::kFullySharded},
      {.repeated = true, .microbatches = 2, .mesh = {2, 1, 2}, .strategy = Strategy::kSequence},
  };
  for (const Setting& setting : settings) {
    INFO((setting.repeated ? "repeated, " : "") << setting.microbatches << " microbatches, mesh "
                                                << fmt::format("{}", fmt::join(setting.mesh, "x")));
    const auto values = logged(setting);
    for (const auto& [name, numbers] : expected) {
      INFO(name);
      REQUIRE(values.at(name).size() == numbers.size());
      for (size_t i = 0; i < numbers.size(); ++i)
        REQUIRE(values.at(name)[i] == Approx(numbers[i]).epsilon(1e-5).margin(1e-7));
    }
  }
}

// The linear model with the auxiliary loss c·mean(prediction²), of every example of a microbatch,
// whatever its weight, from a layer below.
class Penalty final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Penalty;
    static constexpr std::string_view kName = "Penalty";
    FIELDS()
  };
  static constexpr double kFactor = 0.3;
  explicit Penalty(const HParams&) {}

 private:
  Tensor fprop(Tensor x) const override {
    const double elements = static_cast<double>(x.size("batch") * x.size("mlp"));
    add_loss("penalty", reduce_sum(square(x)) * (kFactor / elements));
    return x;
  }
};

class PenalisedModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = PenalisedModel;
    static constexpr std::string_view kName = "PenalisedModel";
    Field<DTypePolicy> dtypes;
    FIELDS(dtypes)
  };
  explicit PenalisedModel(const HParams& p)
      : BaseModel({.dtypes = p.dtypes}),
        matrix_(weight("matrix",
                       {{"embed", LinearModel::kInputs, {}}, {"mlp", LinearModel::kOutputs, {}}},
                       {InitKind::kGaussian, 1.0})),
        bias_(weight("bias", {{"mlp", LinearModel::kOutputs, {}}}, {InitKind::kGaussian, 1.0})),
        penalty_(child<UnaryLayer>("penalty", Penalty::HParams{})) {}

 private:
  Tensor fprop_logits(const Features& features) const override {
    return penalty_(einsum(features.get("x"), param(matrix_), over("embed")) + param(bias_));
  }
  ModelOutput fprop(const Features& features) const override {
    const Tensor weights = features.get("weights");
    const Tensor errors = reduce_sum(square(features.get("y") - fprop_logits(features)), "mlp");
    return {{reduce_sum(errors * weights), reduce_sum(weights)}, {}};
  }

  Weight matrix_, bias_;
  ChildLayer<UnaryLayer> penalty_;
};

// The loss of the examples, in `count` microbatches: microbatch m has the examples m, m + count, ….
double penalised_loss(const LinearExamples& examples, const LinearWeights& weights, size_t count) {
  constexpr size_t in = LinearModel::kInputs, out = LinearModel::kOutputs;
  const size_t size = examples.weights.size();
  double total = 0.0, loss = 0.0;
  for (size_t m = 0; m < count; ++m) {
    double tokens = 0.0, squares = 0.0;
    for (size_t e = m; e < size; e += count) {
      tokens += examples.weights[e];
      for (size_t o = 0; o < out; ++o) {
        double prediction = weights.bias[o];
        for (size_t i = 0; i < in; ++i)
          prediction += examples.x[e * in + i] * weights.matrix[i * out + o];
        squares += prediction * prediction;
        const double error = prediction - examples.y[e * out + o];
        loss += examples.weights[e] * error * error;
      }
    }
    total += tokens;
    loss += tokens * Penalty::kFactor * squares / static_cast<double>(size / count * out);
  }
  return loss / total;
}

TEST_CASE("auxiliary losses of microbatches are averaged with the weights of their tokens") {
  double last = 0.0;
  for (const int64_t microbatches : {1, 2, 4}) {
    INFO(microbatches << " microbatches");
    SingleTask::HParams p = linear_task();
    p.model = PenalisedModel::HParams{};
    p.train.num_microbatches = microbatches;
    LinearTrial trial(p, 8);
    const LinearExamples examples = some_examples(8);
    const LinearWeights before = trial.weights();
    const StepResult result = trial.step(examples);
    const auto loss = [&](const LinearWeights& weights) {
      return penalised_loss(examples, weights, static_cast<size_t>(microbatches));
    };
    REQUIRE(result.loss == Approx(loss(before)).epsilon(1e-5));
    REQUIRE(result.loss != Approx(last).epsilon(1e-4));  // Example weights differ.
    last = result.loss;
    REQUIRE(result.metrics.at("penalty.penalty") == result.metrics.at("penalty"));
    REQUIRE(result.metrics.at("penalty") == result.metrics.at("aux_loss"));
    REQUIRE(linear_step(examples, before).loss + result.metrics.at("aux_loss") ==
            Approx(result.loss).epsilon(1e-5));
    // The step was -0.1 times the gradient.
    const LinearWeights after = trial.weights();
    constexpr double kStep = 1e-5;
    for (size_t i = 0; i < before.matrix.size(); ++i) {
      LinearWeights less = before, more = before;
      less.matrix[i] -= kStep;
      more.matrix[i] += kStep;
      const double slope = (loss(more) - loss(less)) / (2.0 * kStep);
      REQUIRE(before.matrix[i] - after.matrix[i] == Approx(0.1 * slope).margin(3e-6));
    }
    // Evaluation does not optimise.
    const auto evaluated = trial.evaluate(examples);
    REQUIRE(evaluated.at("sum") / evaluated.at("weight") ==
            Approx(linear_step(examples, after).loss).epsilon(1e-5));
  }
}

// The sum of squares as its loss, but without a gradient.
class Broken final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Broken;
    static constexpr std::string_view kName = "Broken";
    FIELDS()
  };
  explicit Broken(const HParams&) {}
  Tensor fprop(Tensor x) const override {
    add_loss("squares", reduce_sum(stop_gradient(square(x))));
    return x;
  }
};

TEST_CASE("a tested layer has the losses and metrics that it adds, and their gradients") {
  const TestedLayer layer(
      ReportingFeedForward::HParams{.inner_tpl =
                                        FeedForward::HParams{.model_dims = 4, .hidden_dims = 6}},
      "f32[\"batch=2 seq=3 embed=4\"]");
  layer.check_gradients();
  double squares = 0.0, positive = 0.0;
  std::vector<double> load(4, 0.0);
  const std::vector<double> result = layer.result();
  for (size_t i = 0; i < result.size(); ++i) {
    squares += result[i] * result[i];
    positive += result[i] > 0.0 ? 1.0 : 0.0;
    load[i % 4] += std::abs(result[i]) / 6.0;
  }
  expect_near(layer.losses().at("squares"), {0.1 * squares / 24.0});
  expect_near(layer.metrics().at("positive"), {positive / 24.0});
  expect_near(layer.metrics().at("load"), load);

  REQUIRE_THROWS_WITH(TestedLayer(Broken::HParams{}, "f32[\"batch=2 seq=3\"]").check_gradients(),
                      Contains("of the gradient of 'x'"));
}

}  // namespace
}  // namespace tessera
