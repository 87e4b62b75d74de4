// SPDX-License-Identifier: Apache-2.0
// A language model with a teacher: its loss against a plain implementation, in chunks and on
// meshes, and that nothing trains the teacher.
#include <cmath>

#include "core/check/numeric_gradient.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/compile/remat/remat.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"
#include "layers/fprop_scope.h"
#include "layers/models/language_model.h"
#include "tasks/task/learner/learner.h"
#include "tests/layers/loss_trial.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Catch::Contains;

constexpr int64_t kVocab = 12, kBatch = 4, kSeq = 8;
constexpr double kWeight = 0.3, kTemperature = 2.5;

TransformerLm::HParams lm(int64_t width, int64_t layers, double soft_cap, int64_t chunk_tokens) {
  return {.vocab_size = kVocab,
          .model_dims = width,
          .num_layers = layers,
          .num_heads = 2,
          .hidden_dims = 2 * width,
          .softmax_tpl = SharedEmbeddingSoftmax::HParams{.loss = {.soft_cap = soft_cap,
                                                                  .chunk_tokens = chunk_tokens}},
          .embedding_dropout_rate = 0.0,
          .params_init = WeightInit{InitKind::kGaussian, 0.4}};
}

LanguageModel::HParams student(int64_t chunk_tokens = 0) {
  LanguageModel::HParams p{.lm_tpl = lm(4, 1, 0.0, chunk_tokens),
                           .teacher_tpl = lm(8, 2, 3.0, chunk_tokens),
                           .teacher_weight = kWeight,
                           .teacher_temperature = kTemperature};
  p.teacher_tpl.as<TransformerLm::HParams>().embedding_dropout_rate = 0.5;
  return p;
}

// The loss, metrics, logits and gradients.
Graph traced(const LanguageModel::HParams& p, const Mesh& mesh = {}, const AxisRules& rules = {},
             Mode mode = Mode::kTrain) {
  Graph graph;
  const TraceScope trace(graph, mesh, rules);
  const auto model = Template<BaseModel>(p).instantiate();
  const std::vector<Tensor> parameters = parameter_inputs(model->parameters());
  Features features{.mode = mode};
  features.step = input("step", InputKind::kScalar, make_type(DType::kI32, {}));
  const std::vector<Axis> axes = {{"batch", kBatch, {}}, {"seq", kSeq, {}}};
  const auto batch = [&](const char* name, DType dtype) {
    const Type type = apply_rules(rules.activations, mesh, make_type(dtype, axes));
    features.tensors[name] = input(name, InputKind::kBatch, type);
  };
  batch("ids", DType::kI32);
  batch("labels", DType::kI32);
  batch("weights", DType::kF32);
  const FpropScope scope(parameters, features);
  const ModelOutput result = (*model)(features);
  const Tensor loss = place(result.loss.sum) / place(result.loss.weight);
  output("loss", loss);
  for (const auto& [name, metric] : result.metrics)
    output(name, place(metric.sum) / place(metric.weight));
  output("logits", replicated(model->logits(features)));
  std::vector<Tensor> trained;
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& each = model->parameters().parameters()[i];
    REQUIRE(each.is_frozen == each.path.starts_with("teacher."));
    if (each.is_frozen) continue;
    trained.push_back(parameters[i]);
    names.push_back(each.path);
  }
  const std::vector<Tensor> slopes = gradients(loss, trained);
  for (size_t i = 0; i < slopes.size(); ++i) output("gradient of " + names[i], slopes[i]);
  return graph;
}

ReferenceInputs inputs_of(const Graph& graph) { return weighted_inputs(graph, kVocab); }

// Log-probabilities of one token.
std::vector<double> log_softmax_of(const std::vector<double>& logits, size_t token,
                                   double divisor) {
  constexpr auto kCount = static_cast<size_t>(kVocab);
  std::vector<double> result(kCount);
  double sum = 0.0;
  for (size_t v = 0; v < kCount; ++v) {
    result[v] = logits[token * kCount + v] / divisor;
    sum += std::exp(result[v]);
  }
  for (double& each : result) each -= std::log(sum);
  return result;
}

// The inputs of a model that is the teacher alone.
ReferenceInputs of_teacher(const ReferenceInputs& inputs) {
  ReferenceInputs result;
  for (const auto& [name, values] : inputs) {
    const bool is_teacher = name.starts_with("teacher.");
    if (!name.starts_with("lm."))
      result[is_teacher ? "lm." + name.substr(name.find('.') + 1) : name] = values;
  }
  return result;
}

TEST_CASE("a model learns from labels and from its teacher as a plain implementation says") {
  const Graph graph = traced(student());
  const ReferenceInputs inputs = inputs_of(graph);
  const LossValues got = loss_values(graph, inputs);
  LanguageModel::HParams alone{.lm_tpl = student().teacher_tpl};
  const std::vector<double> teacher =
      loss_values(traced(alone, {}, {}, Mode::kEval), of_teacher(inputs)).at("logits");
  double loss = 0.0, divergence = 0.0, log_pplx = 0.0, weight = 0.0;
  for (size_t t = 0; t < inputs.at("weights").size(); ++t) {
    const double token = inputs.at("weights")[t];
    const auto label = static_cast<size_t>(inputs.at("labels")[t]);
    const double nats = -log_softmax_of(got.at("logits"), t, 1.0)[label];
    const std::vector<double> expected = log_softmax_of(teacher, t, kTemperature);
    const std::vector<double> predicted = log_softmax_of(got.at("logits"), t, kTemperature);
    double surplus = 0.0;
    for (size_t v = 0; v < expected.size(); ++v)
      surplus += std::exp(expected[v]) * (expected[v] - predicted[v]);
    weight += token;
    log_pplx += token * nats;
    divergence += token * surplus;
    loss += token * ((1.0 - kWeight) * nats + kWeight * kTemperature * kTemperature * surplus);
  }
  REQUIRE(divergence / weight > 0.01);
  REQUIRE(got.at("loss")[0] == Approx(loss / weight).epsilon(1e-12));
  REQUIRE(got.at("log_pplx")[0] == Approx(log_pplx / weight).epsilon(1e-12));
  REQUIRE(got.at("teacher_divergence")[0] == Approx(divergence / weight).epsilon(1e-12));
}

TEST_CASE("the gradients of a model with a teacher agree with finite differences") {
  const Graph graph = rematerialize(traced(student(8)), parse_remat_policy("save_everything"));
  const GradientDifference worst = worst_gradient(graph, inputs_of(graph));
  INFO(worst.name << "[" << worst.element << "]: " << worst.traced << ", " << worst.numeric);
  REQUIRE(worst.relative_size() < 1e-8);
}

TEST_CASE("a loss with a teacher is the same in chunks and on meshes") {
  const Graph one = traced(student());
  const ReferenceInputs inputs = inputs_of(one);
  const LossValues whole = loss_values(one, inputs);
  for (const LossLayout& layout : kLossLayouts)
    for (const int64_t tokens : {0, 4}) {
      INFO(layout.weights << "; " << layout.activations << ", " << tokens);
      const Graph graph = traced(student(tokens), layout.mesh(), layout.rules());
      require_same_losses(loss_values(graph, inputs, layout.mesh()), whole);
    }
}

TEST_CASE("a teacher takes no part in evaluation, and no learner trains it") {
  const LanguageModel::HParams p = student();
  const Graph graph = traced(p, {}, {}, Mode::kEval);
  const ReferenceInputs inputs = inputs_of(graph);
  const LossValues got = loss_values(graph, inputs);
  REQUIRE(got.count("teacher_divergence") == 0);
  REQUIRE(got.at("loss")[0] == got.at("log_pplx")[0]);
  const auto model = Template<BaseModel>(p).instantiate();
  const Learner learner({.optimizer_tpl = Sgd::HParams{}});
  int64_t frozen = 0;
  for (const Parameter& each : model->parameters().parameters()) {
    REQUIRE(learner.trains(each) == each.path.starts_with("lm."));
    frozen += each.is_frozen ? 1 : 0;
  }
  REQUIRE(frozen > 0);
}

TEST_CASE("a teacher that does not fit is refused") {
  LanguageModel::HParams p = student();
  p.teacher_tpl.as<TransformerLm::HParams>().vocab_size = kVocab + 1;
  REQUIRE_THROWS_WITH(Template<BaseModel>(p).instantiate(),
                      Contains("teacher_tpl.vocab_size=13 differs from lm_tpl.vocab_size=12"));
  p = student();
  const auto share = [](Template<TransformerLm>& lm_tpl) {
    auto& softmax =
        lm_tpl.as<TransformerLm::HParams>().softmax_tpl.as<SharedEmbeddingSoftmax::HParams>();
    softmax.layer.shared_id = "table";
  };
  share(p.lm_tpl);
  share(p.teacher_tpl);
  REQUIRE_THROWS_WITH(Template<BaseModel>(p).instantiate(), Contains("another shared_id"));
}

}  // namespace
}  // namespace tessera
