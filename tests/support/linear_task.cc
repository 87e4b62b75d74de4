// SPDX-License-Identifier: Apache-2.0
#include "tests/support/linear_task.h"

#include <cmath>

#include "core/base/error.h"
#include "core/devices/reference/array.h"
#include "core/devices/reference/device.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "tasks/run/session/model_state.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/optimizers.h"
#include "tests/support/optimizer_trial.h"

namespace tessera {

LinearModel::LinearModel(const HParams& p)
    : BaseModel({.dtypes = p.dtypes}),
      matrix_(weight("matrix", {{"embed", kInputs, {}}, {"mlp", kOutputs, {}}},
                     {InitKind::kGaussian, 1.0})),
      bias_(weight("bias", {{"mlp", kOutputs, {}}}, {InitKind::kGaussian, 1.0})) {}

Tensor LinearModel::fprop_logits(const Features& features) const {
  return einsum(features.get("x"), param(matrix_), over("embed")) + param(bias_);
}

ModelOutput LinearModel::fprop(const Features& features) const {
  const Tensor weights = features.get("weights");
  const Tensor errors = reduce_sum(square(features.get("y") - fprop_logits(features)), "mlp");
  const Tensor count = reduce_sum(weights);
  return {{reduce_sum(errors * weights), count},
          {{"large", {reduce_sum(weights * weights), count}}}};
}

Batch LinearExamples::batch() const {
  Batch batch;
  const auto add = [&](const char* name, const char* axis, const std::vector<double>& values) {
    HostArray array{DType::kF32, {"batch"}, {size()}, {}};
    const int64_t width = static_cast<int64_t>(values.size()) / size();
    if (axis != nullptr) {
      array.axes.push_back(axis);
      array.shape.push_back(width);
    }
    array.bytes.resize(values.size() * sizeof(float));
    for (size_t i = 0; i < values.size(); ++i)
      array.data<float>()[i] = static_cast<float>(values[i]);
    batch[name] = array;
  };
  add("x", "embed", x);
  add("y", "mlp", y);
  add("weights", nullptr, weights);
  return batch;
}

LinearExamples some_examples(int64_t count, uint64_t seed) {
  LinearExamples examples{some_numbers(count * LinearModel::kInputs, 10 * seed),
                          some_numbers(count * LinearModel::kOutputs, 10 * seed + 1),
                          {}};
  for (int64_t i = 0; i < count; ++i) examples.weights.push_back(static_cast<double>(i % 4));
  return examples;
}

LinearStep linear_step(const LinearExamples& examples, const LinearWeights& weights) {
  constexpr size_t in = LinearModel::kInputs, out = LinearModel::kOutputs;
  LinearStep step{0.0, {std::vector<double>(in * out, 0.0), std::vector<double>(out, 0.0)}};
  double total = 0.0;
  for (const double weight : examples.weights) total += weight;
  for (size_t e = 0; e < examples.weights.size(); ++e)
    for (size_t o = 0; o < out; ++o) {
      double prediction = weights.bias[o];
      for (size_t i = 0; i < in; ++i)
        prediction += examples.x[e * in + i] * weights.matrix[i * out + o];
      const double error = prediction - examples.y[e * out + o];
      const double share = examples.weights[e] / total;
      step.loss += share * error * error;
      step.gradient.bias[o] += 2.0 * share * error;
      for (size_t i = 0; i < in; ++i)
        step.gradient.matrix[i * out + o] += 2.0 * share * error * examples.x[e * in + i];
    }
  return step;
}

double LinearStep::norm() const {
  double squares = 0.0;
  for (const double g : gradient.matrix) squares += g * g;
  for (const double g : gradient.bias) squares += g * g;
  return std::sqrt(squares);
}

SingleTask::HParams linear_task() {
  return {.model = LinearModel::HParams{},
          .learner = {.optimizer_tpl = Sgd::HParams{.learning_rate = 0.1}}};
}

LinearTrial::LinearTrial(const SingleTask::HParams& p, int64_t batch_size)
    : task_(p), device_(make_reference_device()), executor_(*device_) {
  const Mesh mesh = Mesh::standard({1, 1, 1});
  const AxisRules rules = make_rules({});
  const TraceSetting setting{mesh, rules, some_examples(batch_size).batch()};
  const int number = executor_.add_program(task_.train_graph(setting), {.mesh = mesh});
  const Weights eval_weights = task_.learner().averages() ? Weights::kAveraged : Weights::kTrained;
  eval_program_ = executor_.add_program(task_.eval_graph(setting, eval_weights), {.mesh = mesh});
  executor_.allocate();
  program_ = std::make_unique<TrainProgram>(executor_, number, task_);
  initialise_state(executor_, task_.model().parameters(), 1234, 1);
}

StepResult LinearTrial::step(const LinearExamples& examples) {
  return program_->run(examples.batch(), steps_++);
}

std::vector<double> LinearTrial::read(const std::string& name) const {
  for (const Buffer& buffer : executor_.persistent()) {
    if (buffer.name != name) continue;
    std::vector<std::byte> bytes(static_cast<size_t>(buffer.type.bytes()));
    executor_.read_state(name, bytes);
    return decode_values(buffer.type, bytes.data());
  }
  throw Error("no state " + name);
}

std::map<std::string, double> LinearTrial::evaluate(const LinearExamples& examples) {
  for (const auto& [name, array] : examples.batch())
    executor_.write_input(eval_program_, "batch/" + name, array.bytes);
  executor_.run(eval_program_);
  return {{"sum", executor_.read_scalar(eval_program_, "sum/loss")},
          {"weight", executor_.read_scalar(eval_program_, "weight/loss")}};
}

}  // namespace tessera
