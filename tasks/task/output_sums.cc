// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/output_sums.h"

#include <ranges>

#include "core/compile/autodiff/autodiff.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/fprop_scope.h"

namespace tessera {
namespace {

template <typename T>
std::vector<std::string> names_in(const std::map<std::string, T>& entries) {
  const auto keys = std::views::keys(entries);
  return {keys.begin(), keys.end()};
}

}  // namespace

ModelOutput finished(const ModelOutput& output) {
  ModelOutput result{{replicated(output.loss.sum), replicated(output.loss.weight)}, {}};
  for (const auto& [name, metric] : output.metrics)
    result.metrics[name] = {replicated(metric.sum), replicated(metric.weight)};
  return result;
}

ModelOutput in_sum(ModelOutput output, const Tensor& index, int64_t count) {
  const Axis axis{std::string(kMicrobatchAxis), count, {}};
  for (auto& [name, metric] : output.metrics)
    if (is_inspected(name))
      metric.sum = where(equal(iota(axis), index), broadcast(metric.sum, {axis}),
                         constant(0.0, DType::kF32));
  return output;
}

std::vector<Tensor> select(const std::vector<Tensor>& tensors, const std::vector<int32_t>& which) {
  std::vector<Tensor> selected;
  for (const int32_t index : which) selected.push_back(tensors[static_cast<size_t>(index)]);
  return selected;
}

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

FeatureTypes types_of(const Features& features) {
  FeatureTypes result{{}, features.mode, features.step.valid(), features.draws_labels};
  for (const auto& [name, tensor] : features.tensors) result.types[name] = tensor.type();
  return result;
}

EmptyOutput empty_output(const BaseModel& model, const FeatureTypes& features,
                         int64_t microbatches) {
  EmptyOutput empty;
  std::vector<Type> types;
  {
    Graph scratch;
    const TraceScope trace(scratch, traced_mesh(), traced_rules());
    Features copies{.mode = features.mode, .draws_labels = features.draws_labels};
    for (const auto& [name, type] : features.types)
      copies.tensors[name] = input("batch/" + name, InputKind::kBatch, type);
    if (features.has_step)
      copies.step = input("step", InputKind::kScalar, make_type(DType::kI32, {}));
    const FpropScope scope(parameter_inputs(model.parameters()), copies);
    const ModelOutput output = model(copies);
    empty.names = names_in(output.metrics);
    empty.terms = names_in(output.terms);
    const Tensor first = constant(0.0, DType::kI32);
    for (const Tensor& each : flatten(in_sum(finished(output), first, microbatches)))
      types.push_back(each.type());
  }
  for (const Type& type : types) empty.zeros.push_back(constant(0.0, type.dtype, type.axes));
  return empty;
}

Differentiated mean_of(std::vector<Tensor> sums, const std::vector<Tensor>& targets,
                       const std::vector<std::string>& names) {
  const auto first_scalar = sums.begin() + std::ssize(targets);
  const ModelOutput output = unflatten(names, std::vector<Tensor>(first_scalar, sums.end()));
  sums.erase(first_scalar, sums.end());
  sums = reduced_gradients(sums, targets);
  const Tensor weight = output.loss.weight;
  for (Tensor& sum : sums)
    sum = sum / (sum.dtype() == DType::kF32 ? weight : cast(weight, sum.dtype()));
  return {output.loss.sum / weight, sums, output};
}

}  // namespace tessera
