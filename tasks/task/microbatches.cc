// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/microbatches.h"

#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "layers/fprop_scope.h"

namespace tessera {
namespace {

// Gives scales and biases (vectors, and stacks of vectors) the layout of activations. They are
// small, so one collective a step gathers them, and one scatters their gradients, for all layers
// and microbatches.
std::vector<Tensor> with_whole_vectors(std::vector<Tensor> weights) {
  for (Tensor& weight : weights) {
    const Type& stored = weight.type();
    const bool is_stacked = !stored.axes.empty() && stored.axes.front().name == kLayersAxis;
    if (stored.axes.size() != (is_stacked ? 2 : 1)) continue;
    Type used = apply_rules(traced_rules().activations, traced_mesh(), stored, "residual");
    if (is_stacked) used.axes.front() = stored.axes.front();
    if (!(used == stored))
      weight = reshard(weight, used).named(traced_graph().describe(weight.id()));
  }
  return weights;
}

Differentiated whole_batch(const BaseModel& model, const std::vector<Tensor>& parameters,
                           const std::vector<int32_t>& trained, const Features& features) {
  const std::vector<Tensor> gathered = with_whole_vectors(parameters);
  const FpropScope scope(gathered, features);
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
  const int64_t devices = traced_mesh().size_along(x.type().axis(kBatchAxis).split);
  if (size / count % devices != 0)
    fail(
        "a batch of {} in {} microbatches has {} examples per microbatch, which cannot be divided "
        "among {} devices ({}); use a multiple such as global_batch_size={}, or change "
        "num_microbatches",
        size, count, size / count, devices, fmt::join(x.type().axis(kBatchAxis).split, "*"),
        nearest_multiple(size, count * devices));
  const Tensor split = split_axis(x, kBatchAxis, {"batch_in_microbatch", size / count, {}},
                                  {std::string(kMicrobatchAxis), count, {}});
  std::string order(kMicrobatchAxis);
  for (const Axis& axis : split.type().axes)
    if (axis.name != kMicrobatchAxis) order += " " + axis.name;
  return rename(transpose(split, order), "batch_in_microbatch", kBatchAxis);
}

// [microbatch batch] -> [batch], in the order that into_microbatches divides.
Tensor out_of_microbatches(const Tensor& x) {
  constexpr std::string_view kRows = "batch_in_microbatch";
  const Tensor rows = rename(x, kBatchAxis, kRows);
  return merge_axes(transpose(rows, fmt::format("{} {}", kRows, kMicrobatchAxis)), kRows,
                    kMicrobatchAxis, kBatchAxis);
}

// What the body of a loop over microbatches reads: the features of the batch, and how it finds them
// and the weights inside.
class MicrobatchFeatures {
 public:
  MicrobatchFeatures(const Features& features, int64_t count) : features_(features) {
    for (const auto& [name, tensor] : features.tensors) {
      stacked_.push_back(into_microbatches(tensor, count));
      names_.push_back(name);
    }
  }
  const std::vector<Tensor>& stacked() const { return stacked_; }
  // The features inside the body, from its slices of stacked().
  Features inside(const std::vector<Tensor>& slices) const {
    Features microbatch = features_;
    microbatch.tensors.clear();
    if (microbatch.step) microbatch.step = imported(microbatch.step);
    for (size_t i = 0; i < slices.size(); ++i) microbatch.tensors[names_[i]] = slices[i];
    return microbatch;
  }
  // The mesh axes that split the batch: over these each device has terms of a gradient.
  std::vector<std::string> mesh_axes() const {
    std::vector<std::string> axes;
    for (const Tensor& tensor : stacked_)
      for (const Axis& axis : tensor.type().axes)
        axes.insert(axes.end(), axis.split.begin(), axis.split.end());
    return mesh_union(traced_mesh(), axes, {});
  }

 private:
  const Features& features_;
  std::vector<Tensor> stacked_;
  std::vector<std::string> names_;
};

std::vector<Tensor> all_imported(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> inside;
  for (const Tensor& tensor : tensors) inside.push_back(imported(tensor));
  return inside;
}

template <typename T>
std::vector<std::string> names_in(const std::map<std::string, T>& entries) {
  const auto keys = std::views::keys(entries);
  return {keys.begin(), keys.end()};
}

}  // namespace

Differentiated differentiate(const BaseModel& model, const std::vector<Tensor>& parameters,
                             const std::vector<int32_t>& trained, const Features& features,
                             int64_t num_microbatches, MicrobatchLoop loop) {
  if (num_microbatches == 1 && loop == MicrobatchLoop::kOfSeveral)
    return whole_batch(model, parameters, trained, features);

  const MicrobatchFeatures batch(features, num_microbatches);
  // Loop carry: gradient sums, then metric sums and weights. A device adds its own terms of the
  // gradients that are not sharded over the batch; the sums are reduced once, after the loop.
  const std::vector<std::string> mesh_axes = batch.mesh_axes();
  const std::vector<Tensor> gathered = with_whole_vectors(parameters);
  std::vector<Tensor> carries;
  {
    const PhaseScope phase(Phase::kBackward);
    for (const Tensor& parameter : select(gathered, trained))
      carries.push_back(zeros(unreduced_type(parameter.type(), mesh_axes)));
  }
  const EmptyOutput empty = empty_output(model, types_of(features), num_microbatches);
  carries.insert(carries.end(), empty.zeros.begin(), empty.zeros.end());

  const auto body = [&](Tensor index, std::vector<Tensor> sums, std::vector<Tensor> slices) {
    const ExampleScope examples(index, num_microbatches);
    const Features microbatch = batch.inside(slices);
    const std::vector<Tensor> inside = all_imported(gathered);
    const FpropScope scope(inside, microbatch);
    const ModelOutput output = in_sum(finished(model(microbatch)), index, num_microbatches);
    std::vector<Tensor> terms =
        unreduced_gradients(output.loss.sum, select(inside, trained), mesh_axes);
    for (const Tensor& each : flatten(output)) terms.push_back(each);
    for (size_t i = 0; i < sums.size(); ++i) {
      // The add has the phase of the product that makes the gradient, so that the product can add
      // it.
      const PhaseScope phase(i < trained.size() ? Phase::kBackward : Phase::kForward);
      sums[i] = sums[i] + terms[i];
    }
    return RepeatBody{sums, {}};
  };
  std::vector<Tensor> sums =
      repeat(kMicrobatchAxis, num_microbatches, carries, batch.stacked(), body).carries;

  return mean_of(std::move(sums), select(parameters, trained), empty.names);
}

ModelOutput score(const BaseModel& model, const std::vector<Tensor>& parameters,
                  const Features& features) {
  const FpropScope scope(parameters, features);
  return model(features);
}

ModelOutput score_in_microbatches(const BaseModel& model, const std::vector<Tensor>& parameters,
                                  const Features& features, int64_t num_microbatches) {
  const MicrobatchFeatures batch(features, num_microbatches);
  const EmptyOutput empty = empty_output(model, types_of(features), num_microbatches);
  const auto body = [&](Tensor index, std::vector<Tensor> sums, std::vector<Tensor> slices) {
    const ExampleScope examples(index, num_microbatches);
    const Features microbatch = batch.inside(slices);
    const FpropScope scope(all_imported(parameters), microbatch);
    const ModelOutput output = model(microbatch);
    const std::vector<Tensor> totals = flatten(finished(output));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] + totals[i];
    std::vector<Tensor> rows;
    for (const auto& [name, terms] : output.terms)
      for (const Tensor& each : {terms.sum, terms.weight})
        rows.push_back(reduced(sum_of_examples(name, each)));
    return RepeatBody{sums, rows};
  };
  const RepeatResult result =
      repeat(kMicrobatchAxis, num_microbatches, empty.zeros, batch.stacked(), body);
  ModelOutput output = unflatten(empty.names, result.carries);
  for (size_t i = 0; i < empty.terms.size(); ++i)
    output.terms[empty.terms[i]] = {out_of_microbatches(result.stacked[2 * i]),
                                    out_of_microbatches(result.stacked[2 * i + 1])};
  return output;
}

int64_t most_microbatches(const Features& features, int64_t most) {
  int64_t common = most;  // Divides the batch axis of every feature.
  for (const auto& [name, tensor] : features.tensors) {
    const Axis& batch = tensor.type().axis(kBatchAxis);
    const int64_t on_device = batch.size / traced_mesh().size_along(batch.split);
    while (common > 1 && on_device % common != 0) --common;
  }
  return common;
}

Tensor sum_of_examples(std::string_view metric, const Tensor& terms) {
  if (!terms.type().has(kBatchAxis))
    fail("metric '{}' has no term for each example: its terms are {}, expected an axis 'batch'",
         metric, terms.type().text());
  std::string others;
  for (const std::string& name : terms.type().names())
    if (name != kBatchAxis) others += (others.empty() ? "" : " ") + name;
  return others.empty() ? terms : reduce_sum(terms, others);
}

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
