// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/learner/base_optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/optimizer.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// The axes of one tensor: all but the stack's.
std::span<const Axis> tensor_axes(const Type& type) {
  const std::span<const Axis> axes = type.axes;
  return !axes.empty() && axes[0].name == kLayersAxis ? axes.subspan(1) : axes;
}

// The sum over all axes, or all but that of a stack, by steps that are the same on every mesh: over
// the last axis, and then over what that leaves.
enum class Stack { kSummed, kKept };
Tensor sum_of_squares_in_order(const Tensor& x, Stack stack) {
  Tensor squares = square(in_f32(x));
  std::vector<std::string> names;
  for (const Axis& axis : stack == Stack::kKept ? tensor_axes(x.type()) : x.type().axes)
    names.push_back(axis.name);
  if (names.empty()) return squares;
  const std::string& last = names.back();
  squares =
      reduce_sum(reshard(squares, with_whole_axis(squares.type(), last, traced_mesh())), last);
  names.pop_back();
  if (names.empty()) return squares;
  Type type = squares.type();
  for (Axis& axis : type.axes)
    if (std::ranges::find(names, axis.name) != names.end()) axis.split.clear();
  return reduce_sum(reshard(squares, type), fmt::format("{}", fmt::join(names, " ")));
}

// A partial sum over the mesh axes that split the tensor; one for each layer of a stack.
Tensor partial_sum_of_squares(const Tensor& x) {
  std::string axes;
  for (const Axis& axis : tensor_axes(x.type())) axes += (axes.empty() ? "" : " ") + axis.name;
  return reduce_sum(square(in_f32(x)), axes);
}

Tensor partial_over(const Tensor& scalar, const std::vector<std::string>& mesh_axes) {
  Type type = make_type(scalar.dtype(), {});
  if (!mesh_axes.empty()) type.partial = {PartialKind::kSum, mesh_axes};
  return scalar.type() == type ? scalar : reshard(scalar, type);
}

enum class Kept { kStored, kNot };

void check_moment(std::string_view optimizer, std::string_view field, DType dtype, Kept kept) {
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    fail("{}: state.{} is {}, expected f32 or bf16", optimizer, field, dtype_name(dtype));
  if (dtype != DType::kF32 && kept == Kept::kNot)
    fail("{}: state.{} is {}, but {} with these settings stores no such moment; leave it at f32",
         optimizer, field, dtype_name(dtype), optimizer);
}

}  // namespace

double BaseOptimizer::learning_rate(int64_t step, int64_t num_train_steps) const {
  const double factor =
      calling(*schedule_, "value()", [&] { return schedule_->value(step, num_train_steps); });
  if (!std::isfinite(factor) || factor < 0.0)
    fail_in(*schedule_, "value()", "returned {} at step {}, expected a finite number, 0 or more",
            plain_nan(factor), step);
  return learning_rate_ * factor;
}

int64_t BaseOptimizer::warmup_steps() const {
  const int64_t steps =
      calling(*schedule_, "warmup_steps()", [&] { return schedule_->warmup_steps(); });
  if (steps < 0) fail_in(*schedule_, "warmup_steps()", "returned {}, expected 0 or more", steps);
  return steps;
}

int64_t BaseOptimizer::decay_end() const {
  return calling(*schedule_, "decay_end()", [&] { return schedule_->decay_end(); });
}

std::vector<Slot> BaseOptimizer::slots(const StoredWeight& weight) const {
  std::vector<Slot> slots;
  for (const auto& [name, order] : moments_)
    slots.push_back(
        {name, in_dtype(weight.type, order == MomentOrder::kFirst ? state_.first_moment
                                                                  : state_.second_moment)});
  return slots;
}

std::vector<Tensor> BaseOptimizer::stored(const UpdateInputs& inputs,
                                          const std::vector<Tensor>& next) const {
  CHECK(next.size() == moments_.size());
  std::vector<Tensor> stored;
  std::set<MomentOrder> seen;
  for (size_t i = 0; i < next.size(); ++i) {
    const auto& [name, order] = moments_[i];
    const std::string stream = fmt::format(" ({})", name);
    Noise noise = order == MomentOrder::kFirst ? kFirstNoise : kSecondNoise;
    if (!seen.insert(order).second) noise = {.stream = stream};
    stored.push_back(stored_state(inputs, i, next[i], state_.rounding, noise));
  }
  return stored;
}

double BaseOptimizer::width_factor(const Parameter& parameter) const {
  return 1.0 / width_ratios(parameter).in;
}

Type in_dtype(Type type, DType dtype) {
  type.dtype = dtype;
  return type;
}

Tensor in_f32(const Tensor& x) { return as_dtype(x, DType::kF32); }

std::vector<Slot> checked_slots(const BaseOptimizer& optimizer, const StoredWeight& weight) {
  auto slots = calling(optimizer, "slots()", [&] { return optimizer.slots(weight); });
  std::set<std::string> names = {"", "ema"};  // "ema": of the learner.
  for (const auto& [name, type] : slots) {
    if (name.find('/') != std::string::npos || !names.insert(name).second)
      fail_in(optimizer, "slots()", "a slot is called '{}'; expected different names without '/'",
              name);
    const auto problem = type_problem(type, traced_mesh());
    if (problem || type.partial || (type.dtype != DType::kF32 && type.dtype != DType::kBF16))
      fail_in(optimizer, "slots()", "slot '{}' is {}, expected f32 or bf16 and not partial{}", name,
              type.text_sized(), problem ? "; " + *problem : "");
  }
  return slots;
}

Updated checked_update(const BaseOptimizer& optimizer, const UpdateInputs& inputs) {
  Updated updated = calling(optimizer, "update()", [&] { return optimizer.update(inputs); });
  if (updated.slots.size() != inputs.slots.size())
    fail_in(optimizer, "update()", "returned {} slots, expected {}, as slots() returned",
            updated.slots.size(), inputs.slots.size());
  const auto check = [&](std::string_view what, const Tensor& next, const Tensor& before) {
    if (!next.valid() || next.type() != before.type())
      fail_in(optimizer, "update()", "returned {} {}, expected {}, as before the step", what,
              next.valid() ? next.type().text_sized() : "without a value",
              before.type().text_sized());
  };
  check("a parameter", updated.parameter, inputs.parameter);
  for (size_t i = 0; i < inputs.slots.size(); ++i)
    check("a slot", updated.slots[i], inputs.slots[i]);
  if (optimizer.averages()) check("an average", updated.average, inputs.average);
  return updated;
}

Tensor learning_rate_of(const BaseOptimizer& part, const BaseOptimizer& whole, const Tensor& rate) {
  if (&part == &whole) return rate;
  return rate * (part.base_learning_rate() / whole.base_learning_rate());
}

Tensor sum_of_squares(const Tensor& x) {
  if (trace_state().is_mesh_invariant) return sum_of_squares_in_order(x, Stack::kKept);
  return reduced(partial_sum_of_squares(x));
}

Tensor rms(const Tensor& x) {
  double elements = 1.0;
  for (const Axis& axis : tensor_axes(x.type())) elements *= static_cast<double>(axis.size);
  return sqrt(sum_of_squares(x) * (1.0 / elements));
}

Tensor norm_of_all(const std::vector<Tensor>& tensors, NormPasses passes) {
  if (trace_state().is_mesh_invariant) {
    Tensor total;
    for (const Tensor& tensor : tensors) {
      const Tensor squares = sum_of_squares_in_order(tensor, Stack::kSummed);
      total = total ? total + squares : squares;
    }
    return sqrt(total);
  }
  // Tensors by the mesh axes that split them, over which their sums are partial. These are added as
  // partial sums over the union of the axes; a tensor replicated on several devices counts once, on
  // the first of them.
  struct Group {
    std::vector<std::string> mesh_axes;
    std::vector<Tensor> tensors;
  };
  std::vector<Group> groups;
  std::vector<std::string> all_axes;
  for (const Tensor& tensor : tensors) {
    const std::vector<std::string> mesh_axes = split_of(traced_mesh(), tensor.type());
    auto same = std::ranges::find(groups, mesh_axes, &Group::mesh_axes);
    if (same == groups.end() || passes == NormPasses::kOneForEach)
      same = groups.insert(groups.end(), {mesh_axes, {}});
    same->tensors.push_back(tensor);
    all_axes = mesh_union(traced_mesh(), all_axes, mesh_axes);
  }
  Tensor total;
  for (const Group& group : groups) {
    const Tensor partial = partial_over(squared_norm(group.tensors), all_axes);
    total = total ? total + partial : partial;
  }
  return sqrt(partial_over(total, {}));
}

Tensor cap_rms(const Tensor& x, double threshold) {
  return x / maximum(rms(x) / threshold, constant(1.0, DType::kF32));
}

Tensor clip_scale(double limit, const Tensor& norm) {
  const auto number = [](double value) { return constant(value, DType::kF32); };
  return minimum(number(limit) / norm, number(1.0));
}

Tensor decayed_step(const UpdateInputs& inputs, const Tensor& update) {
  const Tensor parameter = in_f32(inputs.parameter);
  Tensor change = update;
  if (inputs.weight_decay != 0.0) change = change + parameter * inputs.weight_decay;
  const Tensor next = parameter - change * inputs.learning_rate;
  return where(inputs.apply, as_dtype(next, inputs.parameter.dtype()), inputs.parameter);
}

Tensor scaled_gradient(const UpdateInputs& inputs) {
  return in_f32(inputs.gradient) * inputs.gradient_scale;
}

Tensor old_state(const UpdateInputs& inputs, size_t slot) {
  if (slot >= inputs.slots.size())
    fail("slot {} of '{}' is read, but slots() gives {}", slot, inputs.path, inputs.slots.size());
  return in_f32(inputs.slots[slot]);
}

Tensor stored_state(const UpdateInputs& inputs, size_t slot, const Tensor& next, Rounding rounding,
                    const Noise& noise) {
  const Tensor value = where(inputs.apply, next, old_state(inputs, slot));
  const DType dtype = inputs.slots[slot].dtype();
  if (dtype == DType::kF32) return value;
  return rounding == Rounding::kStochastic ? stochastic_round(value, inputs.count, noise)
                                           : cast(value, dtype);
}

Tensor averaged(double decay, const Tensor& old, const Tensor& next) {
  return old * decay + next * (1.0 - decay);
}

Tensor averaged(const Tensor& decay, const Tensor& old, const Tensor& next) {
  return decay * old + (1.0 - decay) * next;
}

Tensor bias_corrected(double beta, const Tensor& count) {
  if (beta == 0.0) return constant(0.0, DType::kF32);
  const Tensor power = exp(count * std::log(beta));
  return beta * (1.0 - power) / (1.0 - beta * power);
}

Tensor bias_correction(double beta, const Tensor& count) {
  if (beta == 0.0) return constant(1.0, DType::kF32);
  return 1.0 - exp((count + 1.0) * std::log(beta));
}

void check_state(std::string_view optimizer, const StatePolicy& state,
                 const std::vector<Moment>& stored) {
  const auto kept = [&](MomentOrder order) {
    const bool has = std::ranges::find(stored, order, &Moment::order) != stored.end();
    return has ? Kept::kStored : Kept::kNot;
  };
  check_moment(optimizer, "first_moment", state.first_moment, kept(MomentOrder::kFirst));
  check_moment(optimizer, "second_moment", state.second_moment, kept(MomentOrder::kSecond));
}

}  // namespace tessera
