// SPDX-License-Identifier: Apache-2.0
// Random training steps: a loss from random ops, loops and views, its gradients, and updates of
// parameters and states. For tests of passes, which must not change what a program computes.
#pragma once

#include <cstdint>

#include "core/graph/graph.h"

namespace tessera {

// The same graph for the same seed. Parameters and states are f32 with values meant to lie in
// [-1, 1]; all ops keep values of that order.
Graph random_program(uint64_t seed);

}  // namespace tessera
