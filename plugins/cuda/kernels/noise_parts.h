// SPDX-License-Identifier: Apache-2.0
// The parts of a shard whose elements a NoiseSpace numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/type.h"
#include "plugins/cuda/kernels/noise.h"

namespace tessera::cuda {

struct NoisePart {
  int64_t begin = 0, elements = 0;  // Position in the shard.
  NoiseSpace noise = {};
};

// All elements of a shard of local type `type` that `node` rounds stochastically. There is one
// part, except for layers in pieces and for shards that are split along more axes than a space has.
std::vector<NoisePart> noise_parts(const Type& type, const Node& node);

}  // namespace tessera::cuda
