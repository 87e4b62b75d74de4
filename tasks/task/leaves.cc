// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/leaves.h"

#include <algorithm>
#include <numeric>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/graph/layer_pieces.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/leaves.h"
#include "core/ops/random.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "layers/fprop_scope.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

bool contains(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// The rules inside of a leaf: no axis of an activation is split over these mesh axes.
AxisRules rules_beside(AxisRules rules, const Names& mesh_axes) {
  for (AxisRule& rule : rules.activations)
    std::erase_if(rule.mesh, [&](const auto& each) { return contains(mesh_axes, each); });
  return rules;
}

const Axis& batch_axis(const Features& features) {
  for (const auto& [name, tensor] : features.tensors)
    if (!tensor.has(kBatchAxis))
      fail("numerics=mesh_invariant: the batch's '{}' is {}, expected an axis 'batch'", name,
           tensor.type().text());
  CHECK(!features.tensors.empty());
  return features.tensors.begin()->second.type().axis(kBatchAxis);
}

// The type of the sum of a weight's gradients: that of the weight. Those of `mesh_axes` that do not
// split it split its first axis that they divide, or none.
Type sum_type(const Type& weight, const Names& mesh_axes) {
  Type type = weight;
  Names others = mesh_axes;
  std::erase_if(others, [&](const auto& each) { return split_over(weight, each); });
  for (Axis& axis : type.axes) {
    const int64_t devices = traced_mesh().size_along(axis.split) * traced_mesh().size_along(others);
    if (axis.name == kLayersAxis || axis.size % devices != 0) continue;
    axis.split.insert(axis.split.end(), others.begin(), others.end());
    break;
  }
  return type;
}

std::vector<Tensor> zero_sums(const std::vector<Tensor>& weights, const Names& mesh_axes) {
  const PhaseScope phase(Phase::kBackward);
  std::vector<Tensor> sums;
  for (const Tensor& each : weights) sums.push_back(zeros(sum_type(each.type(), mesh_axes)));
  return sums;
}

std::vector<Tensor> whole_over(std::vector<Tensor> weights, const Names& mesh_axes) {
  for (Tensor& each : weights) each = reshard(each, unsplit_over(each.type(), mesh_axes));
  return weights;
}

// A batch as a stack of leaves: what the loop slices, and how its body finds its own.
class Leaves {
 public:
  explicit Leaves(const Features& features)
      : features_(features),
        steps_(leaves_of_device(features)),
        mesh_axes_(batch_axis(features).split),
        devices_(traced_mesh().size_along(mesh_axes_)),
        examples_(batch_axis(features).size / (steps_ * devices_)) {
    for (const auto& [name, tensor] : features.tensors) {
      stacked_.push_back(stacked(tensor));
      names_.push_back(name);
    }
  }

  int64_t steps() const { return steps_; }

  // For errors of layers that split a leaf.
  std::string text() const {
    return fmt::format("numerics=mesh_invariant, in a leaf of {} of the batch's examples",
                       examples_);
  }

  const Names& mesh_axes() const { return mesh_axes_; }
  const std::vector<Tensor>& stacked() const { return stacked_; }

  // The first example of this device's leaf in iteration `index`.
  Tensor first_example(const Tensor& index) const {
    const Tensor number = own_leaf(iota({std::string(kLeafAxis), devices_, mesh_axes_}));
    const auto count = [](int64_t value) {
      return constant(static_cast<double>(value), DType::kI32);
    };
    return (index * count(devices_) + number) * count(examples_);
  }

  FeatureTypes own_types() const {
    FeatureTypes result = types_of(features_);
    for (size_t i = 0; i < stacked_.size(); ++i) {
      Type type = slice_type(stacked_[i].type());
      type.axes.erase(type.axes.begin());
      result.types[names_[i]] = std::move(type);
    }
    return result;
  }

  // The features of this device's leaf, from the body's slices of stacked().
  Features own(const std::vector<Tensor>& slices) const {
    Features leaf = features_;
    leaf.tensors.clear();
    if (leaf.step) leaf.step = imported(leaf.step);
    for (size_t i = 0; i < slices.size(); ++i) leaf.tensors[names_[i]] = own_leaf(slices[i]);
    return leaf;
  }

 private:
  // ["batch …"] -> ["microbatch leaf/data batch …"]: consecutive examples are in a leaf, and
  // consecutive leaves on the devices.
  Tensor stacked(const Tensor& x) const {
    const std::string microbatch(kMicrobatchAxis), leaf(kLeafAxis), batch(kBatchAxis);
    Tensor parts = split_axis(whole_along(x, batch), batch, {microbatch, steps_, {}},
                              {batch, devices_ * examples_, {}});
    parts = split_axis(parts, batch, {leaf, devices_, {}}, {batch, examples_, {}});
    std::string order = microbatch + " " + leaf;
    for (const std::string& each : parts.type().names())
      if (each != microbatch && each != leaf) order += " " + each;
    parts = transpose(parts, order);
    Type type = parts.type();
    type.axes[1].split = mesh_axes_;
    return reshard(parts, type);
  }

  const Features& features_;
  int64_t steps_;
  Names mesh_axes_;
  int64_t devices_;
  int64_t examples_;  // The number of them in a leaf.
  std::vector<Tensor> stacked_;
  Names names_;
};

std::string path_of(const BaseModel& model, int32_t parameter) {
  return model.parameters().at(parameter).path;
}

// Error if a layer splits a value of a leaf over the mesh axes that split the batch, as only
// explicit layouts and rules of layers do: each device would have a part of another leaf.
void check_whole_leaves(const Graph& model, const Names& mesh_axes) {
  for (const Node& node : model.nodes()) {
    for (const auto& body : node.bodies) check_whole_leaves(*body, mesh_axes);
    for (const ValueId output : node.outputs) {
      const Type& type = model.type(output);
      for (const std::string& each : mesh_axes)
        if (split_over(type, each) && !type.has(kLeafAxis))
          fail(
              "{}: {} is {}, but {} splits the batch, and each device has a leaf of its own; use "
              "place() in place of an explicit layout [in {}]",
              node.site.text(), node.op->name, type.text(), each, node.path);
    }
  }
}

// The sum and the terms of the leaves that the devices have. Each device gets all terms of its part
// of the sum and adds them in order; a ring would add them on their way.
Tensor plus_leaves(const Tensor& sum, const Tensor& term, const Names& mesh_axes) {
  if (traced_mesh().size_along(mesh_axes) == 1) return sum + reshard(term, sum.type());
  const Tensor leaves = all_leaves(term, mesh_axes);
  Type type = leaves.type();
  for (Axis& axis : type.axes)
    axis.split = axis.name == kLeafAxis ? Names() : sum.type().axis(axis.name).split;
  return add_leaves(sum, reshard(leaves, type));
}

}  // namespace

int64_t leaves_of_batch(int64_t batch) { return std::gcd(batch, int64_t{48}); }

int64_t leaves_of_device(const Features& features) {
  const Axis& batch = batch_axis(features);
  const int64_t leaves = leaves_of_batch(batch.size);
  const int64_t devices = traced_mesh().size_along(batch.split);
  if (leaves % devices != 0)
    fail(
        "numerics=mesh_invariant: a batch of {} has {} leaves (its greatest common divisor with "
        "48), which the {} devices that split it ({}) cannot share equally; use a multiple such as "
        "global_batch_size={}",
        batch.size, leaves, devices, fmt::join(batch.split, "*"), nearest_multiple(batch.size, 48));
  return leaves / devices;
}

Differentiated differentiate_leaves(const BaseModel& model, const std::vector<Tensor>& parameters,
                                    const std::vector<int32_t>& trained, const Features& features) {
  const Leaves leaves(features);
  const ErrorPrefix where(leaves.text());
  const Names& mesh_axes = leaves.mesh_axes();
  const std::vector<Tensor> targets = select(parameters, trained);
  const std::vector<Tensor> whole = whole_over(parameters, mesh_axes);
  const AxisRules rules = rules_beside(traced_rules(), mesh_axes);
  const TraceScope inside_leaves(traced_graph(), traced_mesh(), rules);
  std::vector<Tensor> carries = zero_sums(targets, mesh_axes);
  const EmptyOutput empty = empty_output(model, leaves.own_types(), leaves.steps());
  carries.insert(carries.end(), empty.zeros.begin(), empty.zeros.end());

  const auto body = [&](Tensor index, std::vector<Tensor> sums, std::vector<Tensor> slices) {
    const ExampleScope examples(leaves.first_example(index));
    const Features leaf = leaves.own(slices);
    std::vector<Tensor> inside;
    for (const Tensor& each : whole) inside.push_back(imported(each));
    const FpropScope scope(inside, leaf);
    const ModelOutput output = in_sum(finished(model(leaf)), index, leaves.steps());
    check_whole_leaves(traced_graph(), mesh_axes);
    std::vector<Tensor> terms = gradients(output.loss.sum, select(inside, trained));
    for (const Tensor& each : flatten(output)) terms.push_back(each);
    for (size_t i = 0; i < sums.size(); ++i) {
      const PhaseScope phase(i < trained.size() ? Phase::kBackward : Phase::kForward);
      sums[i] = plus_leaves(sums[i], terms[i], mesh_axes);
      if (i < trained.size()) sums[i].named("gradient of " + path_of(model, trained[i]));
    }
    return RepeatBody{sums, {}};
  };
  std::vector<Tensor> sums =
      repeat(kMicrobatchAxis, leaves.steps(), carries, leaves.stacked(), body).carries;
  return mean_of(sums, targets, empty.names);
}

}  // namespace tessera
