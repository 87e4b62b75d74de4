// SPDX-License-Identifier: Apache-2.0
// The random bits with which kernels round optimizer state (core/ops/rounding.h).
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

// Neighbouring elements of a shard -> their numbers in a stream of random words.
struct NoiseSpace {
  static constexpr int kMostRank = 4;
  uint64_t key;
  int64_t first;  // The number of the first element.
  int rank;
  bool whole_blocks;         // Elements 4i to 4i + 3 have the four words of one block.
  Divider sizes[kMostRank];  // Outermost first.
  int64_t strides[kMostRank];
};

// Parameters of stochastic_round_… in rounding.cu.
struct RoundParameters {
  const float *x, *count;
  void* y;  // bf16
  int64_t elements;
  int noise_shift;  // 16: the high halves of words are the noise; 0: the low ones.
  bool vectors;     // Accesses of 8 elements.
  NoiseSpace noise;
};

}  // namespace tessera::cuda
