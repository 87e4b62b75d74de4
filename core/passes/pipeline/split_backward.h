// SPDX-License-Identifier: Apache-2.0
// Schedules such as ZB-H1 compute the gradients of a piece's input and of its weights in different
// tasks (Qi et al., 2024, arXiv 2401.10241).
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// The attribute of the second loop that split_backward() makes.
inline constexpr std::string_view kBackwardWeightLoop = "backward_weight";

// The localised graph with each backward loop over layers that are stacked over `stage`, in the
// loop over microbatches, as two: the first computes its carries (the gradient that goes to the
// layer before), the second its stacked results (the gradients of weights). What both compute, the
// first stacks for the second.
Graph split_backward(const Graph& localized);

}  // namespace tessera
