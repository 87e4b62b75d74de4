// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding to bf16, bit for bit as on the CPU.
#pragma once

#include "plugins/cuda/kernels/noise.h"
#include "plugins/cuda/kernels/philox.cuh"
#include "plugins/cuda/kernels/strided.cuh"

namespace tessera::cuda {

__device__ inline uint64_t number_in(const NoiseSpace& space, int64_t at) {
  int64_t number = space.first;
  auto rest = static_cast<uint64_t>(at);
#pragma unroll 1
  for (int d = space.rank - 1; d >= 0; --d) {
    const Division parts = divide(rest, space.sizes[d]);
    number += static_cast<int64_t>(parts.remainder) * space.strides[d];
    rest = parts.quotient;
  }
  return static_cast<uint64_t>(number);
}

// The words of elements at to at + width - 1, after `count` updates. With a width of 4, `at` is a
// multiple of it and the space has whole blocks.
template <int width>
__device__ inline void draw_noise(const NoiseSpace& space, float count, int64_t at,
                                  uint32_t (&words)[width]) {
  static_assert(width == 1 || width == 4);
  const uint64_t number = number_in(space, at);
  const RandomStream stream{space.key, static_cast<uint64_t>(static_cast<int64_t>(count))};
  uint32_t block[4];
  draw_block(stream, number / 4, block);
  if constexpr (width == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = block[i];
  } else {
    const uint32_t even = number & 2 ? block[2] : block[0], odd = number & 2 ? block[3] : block[1];
    words[0] = number & 1 ? odd : even;
  }
}

// A value of bf16.
__device__ inline float rounded_to_bf16(float value, uint32_t noise) {
  return __uint_as_float(stochastic_bf16_bits(__float_as_uint(value), noise & 0xffffu) << 16);
}

}  // namespace tessera::cuda
