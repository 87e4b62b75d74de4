// SPDX-License-Identifier: Apache-2.0
// stochastic_round: 6 bytes an element, and about 20 instructions for the random bits.
#include "plugins/cuda/kernels/noise.cuh"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

constexpr int kStored = kVector<bf16>;
constexpr int kBlock = 4;  // Words of a block of Philox.

template <int width>
__device__ void round_elements(const RoundParameters& p, float count, int64_t at) {
  constexpr int kDrawn = width < kBlock ? width : kBlock;
  float x[width];
  load_vector(p.x + at, x);
#pragma unroll
  for (int drawn = 0; drawn < width; drawn += kDrawn) {
    uint32_t words[kDrawn];
    draw_noise(p.noise, count, at + drawn, words);
#pragma unroll
    for (int i = 0; i < kDrawn; ++i)
      x[drawn + i] = rounded_to_bf16(x[drawn + i], words[i] >> p.noise_shift);
  }
  store_vector(static_cast<bf16*>(p.y) + at, x);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    stochastic_round(const __grid_constant__ RoundParameters p) {
  const float count = *p.count;
  const int64_t vectors_end = p.vectors ? p.elements / kStored * kStored : 0;
  for (int64_t i = kStored * thread_number(); i < vectors_end; i += kStored * thread_count())
    round_elements<kStored>(p, count, i);
  for (int64_t i = vectors_end + thread_number(); i < p.elements; i += thread_count())
    round_elements<1>(p, count, i);
}

}  // namespace tessera::cuda
