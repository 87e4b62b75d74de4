// SPDX-License-Identifier: Apache-2.0
// Functions shared by optimizers. A weight stacked by Repeated is a stack of tensors: norms "per
// tensor" are per layer, so that repeated and unrolled models agree.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "tasks/learner/optimizers/base_optimizer.h"

namespace tessera {

// The axes of one tensor of `type`, separated by spaces: all but the stack's.
std::string tensor_axes(const Type& type);
int64_t tensor_elements(const Type& type);

// Σx² of each tensor: a scalar, or one for each layer of a stack. Replicated.
Tensor sum_of_squares(const Tensor& x);
// √Σx² over all of these tensors: a scalar, with one all-reduce over the mesh.
Tensor norm_of_all(const std::vector<Tensor>& tensors);
// x / max(1, rms(x) / threshold), for each tensor.
Tensor cap_rms(const Tensor& x, double threshold);

// parameter - learning_rate·(update + decay·parameter) if `apply`, else the parameter.
Tensor decayed_step(const UpdateInputs& inputs, const Tensor& update);
// The gradient in f32, times gradient_scale.
Tensor scaled_gradient(const UpdateInputs& inputs);
// `next` if the step is applied, else `old`.
Tensor applied(const UpdateInputs& inputs, const Tensor& next, const Tensor& old);

}  // namespace tessera
