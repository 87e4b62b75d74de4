// SPDX-License-Identifier: Apache-2.0
// Copies and fills of rectangles: each byte is read once and written once.
#include "plugins/cuda/kernels/rectangles.h"
#include "plugins/cuda/kernels/strided.cuh"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

constexpr int kBatch = 4;  // Loads of a thread before its first store.

template <typename Unit>
__device__ Unit unit_of(uint64_t pattern) {
  return static_cast<Unit>(pattern);
}
template <>
__device__ uint4 unit_of<uint4>(uint64_t pattern) {
  const auto low = static_cast<uint32_t>(pattern), high = static_cast<uint32_t>(pattern >> 32);
  return {low, high, low, high};
}

template <typename Unit>
__device__ void copy_rectangle(const Rectangle& p) {
  const Unit* const from = static_cast<const Unit*>(p.from);
  Unit* const to = static_cast<Unit*>(p.to);
  for (int64_t first = thread_number(); first < p.units; first += kBatch * thread_count()) {
    Unit units[kBatch];
    int64_t offsets[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t i = first + b * thread_count();
      if (i >= p.units) continue;
      const Division at = divide(i, p.columns);
      const auto row = static_cast<int64_t>(at.quotient);
      const auto column = static_cast<int64_t>(at.remainder);
      offsets[b] = row * p.to_pitch + column;
      units[b] = from == nullptr ? unit_of<Unit>(p.pattern) : from[row * p.from_pitch + column];
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
      if (first + b * thread_count() < p.units) to[offsets[b]] = units[b];
  }
}

}  // namespace

#define TESSERA_COPY(name, Unit)                                               \
  extern "C" __global__ void __launch_bounds__(256) name(const Rectangles p) { \
    copy_rectangle<Unit>(p.list[blockIdx.y]);                                  \
  }
TESSERA_COPY(copy_rectangles_b8, uint8_t)
TESSERA_COPY(copy_rectangles_b16, uint16_t)
TESSERA_COPY(copy_rectangles_b32, uint32_t)
TESSERA_COPY(copy_rectangles_b64, uint64_t)
TESSERA_COPY(copy_rectangles_b128, uint4)

}  // namespace tessera::cuda
