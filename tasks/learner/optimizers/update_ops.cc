// SPDX-License-Identifier: Apache-2.0
#include "tasks/learner/optimizers/update_ops.h"

#include <algorithm>
#include <utility>

#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/parameter.h"

namespace tessera {
namespace {

bool is_stack_axis(const Type& type, size_t position) {
  return position == 0 && type.axes[0].name == kLayersAxis;
}

// A partial sum over the mesh axes that split the tensor; one for each layer of a stack.
Tensor partial_sum_of_squares(const Tensor& x) {
  const Tensor wide = x.dtype() == DType::kF32 ? x : cast(x, DType::kF32);
  return reduce_sum(square(wide), tensor_axes(x.type()));
}

Tensor partial_over(const Tensor& scalar, const std::vector<std::string>& mesh_axes) {
  Type type = make_type(scalar.dtype(), {});
  if (!mesh_axes.empty()) type.partial = {PartialKind::kSum, mesh_axes};
  return scalar.type() == type ? scalar : reshard(scalar, type);
}

}  // namespace

std::string tensor_axes(const Type& type) {
  std::string names;
  for (size_t i = 0; i < type.axes.size(); ++i)
    if (!is_stack_axis(type, i)) names += (names.empty() ? "" : " ") + type.axes[i].name;
  return names;
}

int64_t tensor_elements(const Type& type) {
  int64_t elements = 1;
  for (size_t i = 0; i < type.axes.size(); ++i)
    if (!is_stack_axis(type, i)) elements *= type.axes[i].size;
  return elements;
}

Tensor sum_of_squares(const Tensor& x) {
  const Tensor sum = partial_sum_of_squares(x);
  Type replicated = sum.type();
  for (Axis& axis : replicated.axes) axis.split.clear();
  replicated.partial = {};
  return reshard(sum, replicated);
}

Tensor norm_of_all(const std::vector<Tensor>& tensors) {
  // Sums by the mesh axes over which they are partial. They are added as partial sums over the
  // union of these axes; a tensor replicated on several devices counts once, on the first of them.
  std::vector<std::pair<std::vector<std::string>, Tensor>> sums;
  std::vector<std::string> all_axes;
  for (const Tensor& tensor : tensors) {
    Tensor squares = partial_sum_of_squares(tensor);
    if (squares.type().rank() > 0) squares = reduce_sum(squares);
    const std::vector<std::string> mesh_axes = squares.type().partial.mesh_axes;
    const auto same = std::find_if(sums.begin(), sums.end(),
                                   [&](const auto& each) { return each.first == mesh_axes; });
    if (same == sums.end()) {
      sums.emplace_back(mesh_axes, squares);
      all_axes = mesh_union(traced_mesh(), all_axes, mesh_axes);
    } else {
      same->second = same->second + squares;
    }
  }
  Tensor total;
  for (const auto& [mesh_axes, sum] : sums) {
    const Tensor partial = partial_over(sum, all_axes);
    total = total ? total + partial : partial;
  }
  return sqrt(partial_over(total, {}));
}

Tensor cap_rms(const Tensor& x, double threshold) {
  const double scale_of_mean = 1.0 / static_cast<double>(tensor_elements(x.type()));
  const Tensor rms = sqrt(sum_of_squares(x) * scale_of_mean);
  return x / maximum(rms / threshold, constant(1.0, DType::kF32));
}

Tensor decayed_step(const UpdateInputs& inputs, const Tensor& update) {
  const Tensor parameter = inputs.parameter.dtype() == DType::kF32
                               ? inputs.parameter
                               : cast(inputs.parameter, DType::kF32);
  Tensor change = update;
  if (inputs.weight_decay != 0.0) change = change + parameter * inputs.weight_decay;
  Tensor next = parameter - change * inputs.learning_rate;
  if (next.dtype() != inputs.parameter.dtype()) next = cast(next, inputs.parameter.dtype());
  return applied(inputs, next, inputs.parameter);
}

Tensor scaled_gradient(const UpdateInputs& inputs) {
  const Tensor gradient =
      inputs.gradient.dtype() == DType::kF32 ? inputs.gradient : cast(inputs.gradient, DType::kF32);
  return gradient * inputs.gradient_scale;
}

Tensor applied(const UpdateInputs& inputs, const Tensor& next, const Tensor& old) {
  return where(inputs.apply, next, old);
}

}  // namespace tessera
