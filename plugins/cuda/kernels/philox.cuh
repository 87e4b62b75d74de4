// SPDX-License-Identifier: Apache-2.0
// A block of four random words (core/base/random.h).
#pragma once

#include "core/base/random.h"

namespace tessera::cuda {

__device__ inline void draw_block(const RandomStream& stream, uint64_t counter, uint32_t* words) {
  uint32_t a = static_cast<uint32_t>(counter), b = static_cast<uint32_t>(counter >> 32);
  uint32_t c = static_cast<uint32_t>(stream.step), d = static_cast<uint32_t>(stream.step >> 32);
  PhiloxRounds round(stream.key);
#pragma unroll
  for (int i = 0; i < PhiloxRounds::kCount; ++i, round.advance()) round.apply(a, b, c, d);
  words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}

}  // namespace tessera::cuda
