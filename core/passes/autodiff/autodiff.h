// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation on global arrays, appended to the trace. Layouts of cotangents
// follow the boundary rule (cotangents.h), so no layer writes a collective for its backward pass.
#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// Gradients of `loss` (an f32 scalar, not partial) with respect to `targets`, times `seed` (an f32
// scalar; 1 if invalid). Each has exactly the type of its target (layout, axis order, dtype) and is
// zero if the loss does not depend on the target. Nodes are traced in Phase::kBackward with the
// source line and path of the forward node they belong to. Error that names op, path and line if an
// op has no gradient.
std::vector<Tensor> gradients(const Tensor& loss, const std::vector<Tensor>& targets,
                              const Tensor& seed = {});

}  // namespace tessera
