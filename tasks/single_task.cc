// SPDX-License-Identifier: Apache-2.0
#include "tasks/single_task.h"

#include "core/base/error.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/generator.h"
#include "core/graph/ops/random.h"
#include "core/graph/ops/reduce.h"
#include "core/graph/ops/reshard.h"
#include "core/graph/trace.h"
#include "core/passes/autodiff.h"
#include "layers/fprop_scope.h"
#include "tasks/microbatches.h"
#include "tasks/optimizers/update_ops.h"

namespace tessera {
namespace {

const TemplateRegistrar<BaseTask, SingleTask> kRegister;

// Inputs "batch/…" laid out as the activation rules say.
Features batch_features(const Batch& batch, Mode mode) {
  Features features;
  features.mode = mode;
  for (const auto& [name, array] : batch) {
    Type type{array.dtype, {}, {}};
    for (size_t i = 0; i < array.axes.size(); ++i)
      type.axes.push_back({array.axes[i], array.shape[i], {}});
    type = apply_rules(traced_rules().activations, traced_mesh(), type);
    features.tensors[name] =
        input(std::string(names::kBatchPrefix) + name, InputKind::kBatch, type);
  }
  return features;
}

// An average of the weights has their names, prefixed, and their types.
std::vector<Tensor> weight_inputs(const ParameterTable& table, Weights weights) {
  if (weights == Weights::kTrained) return parameter_inputs(table);
  std::vector<Tensor> inputs;
  for (const Parameter& each : table.parameters())
    inputs.push_back(input(ema_name(each.path), InputKind::kState, type_at_rest(each)));
  return inputs;
}

Tensor finished(const Tensor& scalar) { return reshard(scalar, make_type(scalar.dtype(), {})); }

// The loss goes among the metrics as "loss"; sums and weights leave undivided.
void output_metrics(const ModelOutput& output) {
  const auto leave = [](const std::string& name, const Metric& metric) {
    tessera::output(std::string(names::kSumPrefix) + name, finished(metric.sum));
    tessera::output(std::string(names::kWeightPrefix) + name, finished(metric.weight));
  };
  leave(std::string(names::kLoss), output.loss);
  for (const auto& [name, metric] : output.metrics) leave(name, metric);
}

Tensor norm_of(const Tensor& x) {
  const Tensor squares = sum_of_squares(x);
  return sqrt(squares.type().rank() > 0 ? reduce_sum(squares) : squares);
}

}  // namespace

SingleTask::SingleTask(const HParams& p)
    : p_(p), model_(p.model.instantiate()), learner_(p.learner) {
  check(p.train);
  learner_.check(model_->parameters());
}

Graph SingleTask::train_graph(const TraceSetting& setting) const {
  Graph graph;
  const TraceScope trace(graph, setting.mesh, setting.rules);
  const SeedScope seed(p_.train.seed);
  const ParameterTable& table = model_->parameters();
  const std::vector<Tensor> parameters = parameter_inputs(table);
  Features features = batch_features(setting.batch, Mode::kTrain);
  features.step = input(std::string(names::kStep), InputKind::kScalar, make_type(DType::kI32, {}));
  const Tensor learning_rate =
      input(std::string(names::kLearningRate), InputKind::kScalar, make_type(DType::kF32, {}));

  std::vector<int32_t> trained;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (learner_.trains(table.parameters()[i].path)) trained.push_back(static_cast<int32_t>(i));
  const Differentiated step =
      differentiate(*model_, parameters, trained, features, p_.train.num_microbatches);

  const LearnerReport report =
      learner_.step(table, parameters, step.gradients, step.loss, learning_rate);
  output(std::string(names::kLoss), step.loss);
  output_metrics(step.output);
  output(std::string(names::kGradNorm), report.grad_norm);
  output(std::string(names::kApplied),
         where(report.applied, constant(1.0, DType::kF32), constant(0.0, DType::kF32)));
  output(std::string(names::kSkipped), report.skipped);
  output(std::string(names::kSkippedInARow), report.skipped_in_a_row);
  if (p_.train.parameter_norms) {
    for (size_t i = 0; i < trained.size(); ++i) {
      const std::string& path = table.at(trained[i]).path;
      output(std::string(names::kParameterNormPrefix) + path,
             norm_of(parameters[static_cast<size_t>(trained[i])]));
      output(std::string(names::kGradientNormPrefix) + path, norm_of(step.gradients[i]));
    }
  }
  return graph;
}

Graph SingleTask::eval_graph(const TraceSetting& setting, Weights weights) const {
  Graph graph;
  const TraceScope trace(graph, setting.mesh, setting.rules);
  const Features features = batch_features(setting.batch, Mode::kEval);
  const FpropScope scope(weight_inputs(model_->parameters(), weights), features);
  output_metrics(model_->fprop(features));
  return graph;
}

Graph SingleTask::logits_graph(const TraceSetting& setting, Weights weights) const {
  Graph graph;
  const TraceScope trace(graph, setting.mesh, setting.rules);
  const Features features = batch_features(setting.batch, Mode::kEval);
  const FpropScope scope(weight_inputs(model_->parameters(), weights), features);
  Tensor logits = model_->logits(features);
  if (logits.dtype() != DType::kF32) logits = cast(logits, DType::kF32);
  // The copies are alike, so their maximum is any of them.
  const Tensor one = reduce_max(logits, "batch");
  std::vector<Axis> whole = one.type().axes;
  for (Axis& axis : whole) axis.split.clear();
  output(std::string(names::kLogits), reshard(one, make_type(DType::kF32, whole)));
  return graph;
}

}  // namespace tessera
