// SPDX-License-Identifier: Apache-2.0
#include "tasks/microbatches.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/random.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/passes/autodiff/autodiff.h"
#include "layers/fprop_scope.h"

namespace tessera {
namespace {

constexpr std::string_view kMicrobatch = "microbatch";
constexpr std::string_view kBatchAxis = "batch";

ModelOutput finished(const ModelOutput& output) {
  ModelOutput result{{replicated(output.loss.sum), replicated(output.loss.weight)}, {}};
  for (const auto& [name, metric] : output.metrics)
    result.metrics[name] = {replicated(metric.sum), replicated(metric.weight)};
  return result;
}

std::vector<Tensor> select(const std::vector<Tensor>& tensors, const std::vector<int32_t>& which) {
  std::vector<Tensor> selected;
  for (const int32_t index : which) selected.push_back(tensors[static_cast<size_t>(index)]);
  return selected;
}

Differentiated whole_batch(const BaseModel& model, const std::vector<Tensor>& parameters,
                           const std::vector<int32_t>& trained, const Features& features) {
  const FpropScope scope(parameters, features);
  const ModelOutput output = finished(model(features));
  const Tensor loss = output.loss.sum / output.loss.weight;
  return {loss, gradients(loss, select(parameters, trained)), output};
}

// [batch …] -> [microbatch batch …]. Microbatch i holds examples i, i + n, …: the batch axis keeps
// its sharding, and every device has a part of every microbatch.
Tensor into_microbatches(const Tensor& x, int64_t count) {
  const int64_t size = x.size(kBatchAxis);
  if (size % count != 0)
    fail(
        "a batch of {} cannot be divided into {} microbatches; change num_microbatches or "
        "global_batch_size",
        size, count);
  int64_t devices = 1;
  for (const std::string& name : x.type().axis(kBatchAxis).split)
    devices *= traced_mesh().size(name);
  if (size / count % devices != 0)
    fail(
        "a batch of {} in {} microbatches has {} examples per microbatch, which cannot be divided "
        "among {} devices ({}); use a multiple such as global_batch_size={}, or change "
        "num_microbatches",
        size, count, size / count, devices, fmt::join(x.type().axis(kBatchAxis).split, "*"),
        nearest_multiple(size, count * devices));
  const Tensor split = split_axis(x, kBatchAxis, {"batch_in_microbatch", size / count, {}},
                                  {std::string(kMicrobatch), count, {}});
  std::string order(kMicrobatch);
  for (const Axis& axis : split.type().axes)
    if (axis.name != kMicrobatch) order += " " + axis.name;
  return rename(transpose(split, order), "batch_in_microbatch", kBatchAxis);
}

// Packs a model's output into a flat list of sums and weights for the loop carry, and unpacks it.
std::vector<Tensor> flatten(const ModelOutput& output) {
  std::vector<Tensor> flat = {output.loss.sum, output.loss.weight};
  for (const auto& [name, metric] : output.metrics) {
    flat.push_back(metric.sum);
    flat.push_back(metric.weight);
  }
  return flat;
}

ModelOutput unflatten(const std::vector<std::string>& names, const std::vector<Tensor>& flat) {
  ModelOutput output{{flat[0], flat[1]}, {}};
  for (size_t i = 0; i < names.size(); ++i)
    output.metrics[names[i]] = {flat[2 * i + 2], flat[2 * i + 3]};
  return output;
}

// The names of a model's metrics, and the zeros that its output is added to.
struct EmptyOutput {
  std::vector<std::string> names;
  std::vector<Tensor> zeros;  // As flatten() orders them.
};

// The types come from a trace that is discarded.
EmptyOutput empty_output(const BaseModel& model, const Features& features) {
  EmptyOutput empty;
  std::vector<Type> types;
  {
    Graph scratch;
    const TraceScope trace(scratch, traced_mesh(), traced_rules());
    Features copies{{}, features.mode, {}};
    for (const auto& [name, tensor] : features.tensors)
      copies.tensors[name] = input("batch/" + name, InputKind::kBatch, tensor.type());
    if (features.step) copies.step = input("step", InputKind::kScalar, features.step.type());
    const FpropScope scope(parameter_inputs(model.parameters()), copies);
    const ModelOutput output = finished(model(copies));
    for (const auto& [name, metric] : output.metrics) empty.names.push_back(name);
    for (const Tensor& each : flatten(output)) types.push_back(each.type());
  }
  for (const Type& type : types) empty.zeros.push_back(constant(0.0, type.dtype, type.axes));
  return empty;
}

}  // namespace

Differentiated differentiate(const BaseModel& model, const std::vector<Tensor>& parameters,
                             const std::vector<int32_t>& trained, const Features& features,
                             int64_t num_microbatches) {
  if (num_microbatches == 1) return whole_batch(model, parameters, trained, features);

  std::vector<Tensor> stacked;
  std::vector<std::string> stacked_names;
  for (const auto& [name, tensor] : features.tensors) {
    stacked.push_back(into_microbatches(tensor, num_microbatches));
    stacked_names.push_back(name);
  }
  // Loop carry: gradient sums in the parameters' layout, then metric sums and weights.
  std::vector<Tensor> carries;
  for (const Tensor& parameter : select(parameters, trained))
    carries.push_back(constant(0.0, parameter.dtype(), parameter.type().axes));
  const EmptyOutput empty = empty_output(model, features);
  carries.insert(carries.end(), empty.zeros.begin(), empty.zeros.end());

  const auto body = [&](Tensor index, std::vector<Tensor> sums, std::vector<Tensor> slices) {
    const ExampleScope examples(index, num_microbatches);
    Features microbatch{{}, features.mode, features.step ? imported(features.step) : Tensor()};
    for (size_t i = 0; i < slices.size(); ++i) microbatch.tensors[stacked_names[i]] = slices[i];
    std::vector<Tensor> inside;
    for (const Tensor& parameter : parameters) inside.push_back(imported(parameter));
    const FpropScope scope(inside, microbatch);
    const ModelOutput output = finished(model(microbatch));
    std::vector<Tensor> terms = gradients(output.loss.sum, select(inside, trained));
    for (const Tensor& each : flatten(output)) terms.push_back(each);
    for (size_t i = 0; i < sums.size(); ++i) {
      // In the phase of the product that makes the gradient, which can then add it to the sum.
      const PhaseScope phase(i < trained.size() ? Phase::kBackward : Phase::kForward);
      sums[i] = sums[i] + terms[i];
    }
    return RepeatBody{sums, {}};
  };
  std::vector<Tensor> sums = repeat(kMicrobatch, num_microbatches, carries, stacked, body).carries;

  const auto first_scalar = sums.begin() + static_cast<int64_t>(trained.size());
  const ModelOutput output = unflatten(empty.names, std::vector<Tensor>(first_scalar, sums.end()));
  sums.erase(first_scalar, sums.end());
  const Tensor weight = output.loss.weight;
  for (Tensor& sum : sums)
    sum = sum / (sum.dtype() == DType::kF32 ? weight : cast(weight, sum.dtype()));
  return {output.loss.sum / weight, sums, output};
}

}  // namespace tessera
