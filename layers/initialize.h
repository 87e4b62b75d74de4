// SPDX-License-Identifier: Apache-2.0
// Initial values of weights, as numbers in host memory. They are a pure function of the seed, the
// weight's path and an element's global index, so that every mesh and number of hosts starts with
// the same bits, and a stacked weight with those of the unrolled ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/graph/type.h"
#include "layers/parameter.h"

namespace tessera {

// Fills `destination` with this block of the weight, row-major in its dtype (f32 or bf16), on up to
// `threads` threads (0: one per core). The whole weight is never materialised, except for an
// orthogonal one: there, one layer's matrix at a time. Error if the initialiser does not suit the
// weight's axes.
void initialize(const Parameter& parameter, uint64_t seed, const Region& block,
                std::span<std::byte> destination, int threads = 0);
// The whole weight.
void initialize(const Parameter& parameter, uint64_t seed, std::span<std::byte> destination,
                int threads = 0);

// An initialiser for a weight of these sizes (without the stack's axis): a standard distribution
// and the factor that multiplies its draws.
struct Draw {
  enum class Distribution { kConstant, kNormal, kTruncatedNormal, kUniform, kOrthogonal };
  Distribution distribution = Distribution::kConstant;
  double factor = 0.0;  // kUniform: of U(-1, 1).
};
Draw draw_of(const Parameter& parameter);

}  // namespace tessera
