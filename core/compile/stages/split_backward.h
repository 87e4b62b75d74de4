// SPDX-License-Identifier: Apache-2.0
// Divides the backward pass for schedules such as ZB-H1, which compute the gradients of a piece's
// input and of its weights in different tasks (Qi et al., 2024, arXiv 2401.10241).
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// The attribute of the second loop that split_backward() makes.
inline constexpr AttributeName<bool> kBackwardWeightLoop{"backward_weight"};

// Splits each backward loop over layers that are stacked over `stage`, in the loop over
// microbatches of a localised graph, into two: the first computes its carries (the gradient for the
// previous layer), the second its stacked results (the gradients of weights). The first stacks the
// values that both need.
Graph split_backward(const Graph& localized);

}  // namespace tessera
