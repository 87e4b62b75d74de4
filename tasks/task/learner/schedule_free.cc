// SPDX-License-Identifier: Apache-2.0
// The optimizer ScheduleFreeAdamW.
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reshard.h"
#include "tasks/task/learner/optimizers.h"

namespace tessera {

REGISTER_TEMPLATE(BaseOptimizer, ScheduleFreeAdamW);

ScheduleFreeAdamW::ScheduleFreeAdamW(const HParams& p)
    : BaseOptimizer(p, {{"v", MomentOrder::kSecond}}), p_(p) {}

std::vector<Slot> ScheduleFreeAdamW::slots(const StoredWeight& weight) const {
  std::vector<Slot> slots = BaseOptimizer::slots(weight);
  Type number = make_type(DType::kF32, {});  // One for each layer of a stack.
  const std::vector<Axis>& axes = weight.type.axes;
  if (!axes.empty() && axes[0].name == kLayersAxis) number.axes.push_back(axes[0]);
  slots.push_back({"z", in_dtype(weight.type, DType::kF32)});
  slots.push_back({"largest_rate", number});
  slots.push_back({"weight_sum", number});
  return slots;
}

Updated ScheduleFreeAdamW::update(const UpdateInputs& inputs) const {
  const Tensor zero = constant(0.0, DType::kF32);
  const Tensor gradient = scaled_gradient(inputs);
  const Tensor y = in_f32(inputs.parameter), x = in_f32(inputs.average);
  const Tensor z = where(less(zero, inputs.count), old_state(inputs, 1), y);  // State begins at 0.
  const Tensor v = averaged(p_.beta2, old_state(inputs, 0), square(gradient));
  const Tensor deviation = sqrt(v / bias_correction(p_.beta2, inputs.count));
  Tensor change = gradient / (deviation + p_.epsilon);
  if (inputs.weight_decay != 0.0) change = change + y * inputs.weight_decay;

  const Tensor largest = maximum(old_state(inputs, 2), inputs.learning_rate);
  Tensor weight = pow(largest, constant(p_.rate_power, DType::kF32));
  if (p_.step_power > 0.0) weight = weight * exp(log(inputs.count + 1.0) * p_.step_power);
  const Tensor sum = old_state(inputs, 3) + weight;
  const Tensor share = where(less(zero, sum), weight / sum, zero);
  const Tensor next_z = z - change * inputs.learning_rate;
  const Tensor next_x = (1.0 - share) * x + share * next_z;
  const Tensor next_y = averaged(p_.beta1, next_x, next_z);
  std::vector<Tensor> slots = {v, next_z, largest, sum};
  for (size_t i = 0; i < slots.size(); ++i)
    slots[i] = stored_state(inputs, i, slots[i], p_.state.rounding, kSecondNoise);
  const auto applied = [&](const Tensor& next, const Tensor& old) {
    return where(inputs.apply, as_dtype(next, old.dtype()), old);
  };
  return {applied(next_y, inputs.parameter), slots, applied(next_x, inputs.average)};
}

}  // namespace tessera
