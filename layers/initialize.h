// SPDX-License-Identifier: Apache-2.0
// Initial values of weights: from (initialiser, type, seed) to numbers in host memory. A pure
// function of the seed, the weight's path and the global index of an element, so that every mesh
// and host count begins alike, and a stacked weight as the unrolled ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/graph/shard.h"
#include "layers/parameter.h"

namespace tessera {

// Fills `destination`, this block of the weight row-major in its dtype (f32 or bf16), on up to
// `threads` threads (0: all the machine has). The bits are those of the block of the whole weight,
// which is never made, but for orthogonal ones: there, a layer's matrix at a time. Error if the
// initialiser does not suit the weight's axes.
void initialize(const Parameter& parameter, uint64_t seed, const Region& block,
                std::span<std::byte> destination, int threads = 0);
// The whole weight.
void initialize(const Parameter& parameter, uint64_t seed, std::span<std::byte> destination,
                int threads = 0);

// An initialiser reduced to its distribution and the factor that multiplies a standard draw, for
// this weight's sizes (the stack's axis not counted).
struct Draw {
  enum class Distribution { kConstant, kNormal, kTruncatedNormal, kUniform, kOrthogonal };
  Distribution distribution = Distribution::kConstant;
  double factor = 0.0;  // kUniform: of U(-1, 1).
};
Draw draw_of(const Parameter& parameter);

}  // namespace tessera
