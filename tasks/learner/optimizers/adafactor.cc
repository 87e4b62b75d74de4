// SPDX-License-Identifier: Apache-2.0
#include "tasks/learner/optimizers/adafactor.h"

#include <optional>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/norm.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/parameter.h"
#include "tasks/learner/optimizers/update_ops.h"

namespace tessera {

template class HolderOf<BaseOptimizer, Adafactor::HParams>;

namespace {

const TemplateRegistrar<BaseOptimizer, Adafactor> kRegisterAdafactor;

// The two largest axes of a tensor, over which its second moment is factored.
struct Factored {
  std::string row;  // The smaller: one statistic for each of its elements.
  std::string column;
};

std::optional<Factored> factored_axes(const Type& type, int64_t least) {
  const Axis* largest = nullptr;
  const Axis* second = nullptr;
  for (const Axis& axis : type.axes) {
    if (&axis == &type.axes[0] && axis.name == kLayersAxis) continue;
    if (largest == nullptr || axis.size >= largest->size) {
      second = largest;
      largest = &axis;
    } else if (second == nullptr || axis.size >= second->size) {
      second = &axis;
    }
  }
  if (second == nullptr || second->size < least) return std::nullopt;
  return Factored{second->name, largest->name};
}

Type without(const Type& type, std::string_view axis) {
  Type result = type;
  std::erase_if(result.axes, [&](const Axis& each) { return each.name == axis; });
  return result;
}

// The mean over an axis, reduced, with the layout of the remaining axes.
Tensor mean_over(const Tensor& x, const std::string& axis) {
  return reshard(reduce_mean(x, axis), without(x.type(), axis));
}

// old·decay + new·(1 - decay).
Tensor averaged(const Tensor& decay, const Tensor& old, const Tensor& next) {
  return decay * old + (1.0 - decay) * next;
}

}  // namespace

Adafactor::Adafactor(const HParams& p) : BaseOptimizer(p), p_(p) {
  check_not_negative(p.kName, "epsilon1", p.epsilon1);
  check_not_negative(p.kName, "epsilon2", p.epsilon2);
  check_not_negative(p.kName, "decay_exponent", p.decay_exponent);
  check_finite(p.kName, "clip_threshold", p.clip_threshold);
  if (p.decay_exponent <= 0.0)
    fail("Adafactor: decay_exponent is {}, expected more than 0", p.decay_exponent);
  check_fraction(p.kName, "beta1", p.beta1);
}

std::vector<Slot> Adafactor::slots(const Type& parameter) const {
  Type type = parameter;
  type.dtype = DType::kF32;
  std::vector<Slot> slots;
  if (const auto factored = factored_axes(type, p_.min_dim_size_to_factor)) {
    slots = {{"v_row", without(type, factored->column)},
             {"v_column", without(type, factored->row)}};
  } else {
    slots = {{"v", type}};
  }
  if (p_.beta1 > 0.0) slots.push_back({"m", type});
  return slots;
}

Updated Adafactor::update(const UpdateInputs& inputs) const {
  const Tensor gradient = scaled_gradient(inputs);
  const Tensor squared = square(gradient) + p_.epsilon1;
  // 1 - t^-exponent, t counting from 1.
  const Tensor decay = 1.0 - exp(log(inputs.count + 1.0) * -p_.decay_exponent);

  std::vector<Tensor> next;
  Tensor change;
  if (const auto factored = factored_axes(gradient.type(), p_.min_dim_size_to_factor)) {
    const Tensor row = averaged(decay, inputs.slots[0], mean_over(squared, factored->column));
    const Tensor column = averaged(decay, inputs.slots[1], mean_over(squared, factored->row));
    const Tensor row_mean = mean_over(row, factored->row);
    change = gradient * rsqrt(row / row_mean) * rsqrt(column);
    next = {row, column};
  } else {
    const Tensor v = averaged(decay, inputs.slots[0], squared);
    change = gradient * rsqrt(v);
    next = {v};
  }
  if (p_.clip_threshold > 0.0) change = cap_rms(change, p_.clip_threshold);
  if (p_.beta1 > 0.0) {
    change = inputs.slots.back() * p_.beta1 + change * (1.0 - p_.beta1);
    next.push_back(change);
  }
  if (p_.multiply_by_parameter_scale) {
    const double share = 1.0 / static_cast<double>(tensor_elements(inputs.parameter.type()));
    const Tensor rms = sqrt(sum_of_squares(inputs.parameter) * share);
    change = change * maximum(rms, constant(p_.epsilon2, DType::kF32));
  }
  for (size_t i = 0; i < next.size(); ++i) next[i] = applied(inputs, next[i], inputs.slots[i]);
  return {decayed_step(inputs, change), next};
}

}  // namespace tessera
