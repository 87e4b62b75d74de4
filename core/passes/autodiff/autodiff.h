// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation on global arrays, appended to the trace. Cotangents follow the
// boundary rule of docs/design.md §2; no layer writes a collective for the backward pass.
#pragma once

#include <vector>

#include "core/graph/tensor.h"

namespace tessera {

// Gradients of `loss` (a scalar, f32, not partial) with respect to `targets`, times `seed` (an f32
// scalar; invalid: 1). Each has its target's type exactly (layout, axis order, dtype), zeros where
// the loss does not depend on it. Nodes are traced in Phase::kBackward and keep the site and path
// of the forward node they serve. Error naming op, path and line where an op has no gradient.
std::vector<Tensor> gradients(const Tensor& loss, const std::vector<Tensor>& targets,
                              const Tensor& seed = {});

}  // namespace tessera
