// SPDX-License-Identifier: Apache-2.0
// Random training steps: a loss from random ops, loops and views, its gradients, and updates of
// parameters and states. For tests that passes do not change a program's results.
#pragma once

#include <cstdint>

#include "core/graph/graph.h"

namespace tessera {

// A function of the seed alone. Parameters and states are f32, with values in [-1, 1]
// expected; all ops keep that magnitude.
Graph random_program(uint64_t seed);

}  // namespace tessera
