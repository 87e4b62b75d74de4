// SPDX-License-Identifier: Apache-2.0
// Rows and elements selected by integer operands: gather, pick, scatter_along and cache_update.
#include "plugins/cuda/kernels/gather.h"
#include "plugins/cuda/kernels/strided.cuh"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

template <typename Unit>
__device__ void copy_row(const Unit* __restrict__ from, Unit* __restrict__ to, int64_t units,
                         int lanes_shift) {
  const int lane = threadIdx.x & ((1 << lanes_shift) - 1);
  const int64_t count = count_steps(lane, units, lanes_shift);
#pragma unroll 4
  for (int64_t step = 0; step < count; ++step) {
    const int64_t i = lane + (step << lanes_shift);
    to[i] = from != nullptr ? from[i] : Unit{};
  }
}

template <typename Unit>
__device__ void gather(const Gather& p) {
  for (int64_t i = thread_number() >> p.lanes_shift; i < p.count;
       i += thread_count() >> p.lanes_shift) {
    const int64_t row = p.ids[i] - p.first;
    const bool inside = row >= 0 && row < p.rows;
    const int64_t from_row = divide(i, p.ids_of_batch).quotient * p.rows + row;
    const Unit* const from =
        inside ? static_cast<const Unit*>(p.table) + from_row * p.row_units : nullptr;
    copy_row(from, static_cast<Unit*>(p.to) + i * p.row_units, p.row_units, p.lanes_shift);
  }
}

template <typename Unit>
__device__ void pick(const Pick& p) {
#pragma unroll 1
  for (int64_t i = thread_number(); i < p.count; i += thread_count()) {
    const int64_t row = p.ids[i] - p.first;
    const Division at = divide(i, p.inner);
    const int64_t outer = divide(at.quotient, p.several).quotient;
    const int64_t from = (outer * p.rows + row) * p.inner.divisor + at.remainder;
    const bool inside = row >= 0 && row < p.rows;
    static_cast<Unit*>(p.to)[i] = inside ? static_cast<const Unit*>(p.from)[from] : Unit{};
  }
}

// A thread reads all ids of its row, mostly from the L1 cache.
template <typename T>
__device__ void scatter_along(const ScatterAlong& p) {
#pragma unroll 1
  for (int64_t i = thread_number(); i < p.count; i += thread_count()) {
    const Division at = divide(i, p.inner);
    const Division row = divide(at.quotient, p.rows);
    const int64_t id = p.first + row.remainder, stride = p.inner.divisor;
    const int64_t begin = row.quotient * p.several * stride + at.remainder;
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t j = 0; j < p.several; ++j) {
      const int64_t from = begin + j * stride;
      if (p.ids[from] == id) sum += to_float(static_cast<const T*>(p.x)[from]);
    }
    static_cast<T*>(p.to)[i] = from_float<T>(sum);
  }
}

template <typename Unit>
__device__ void cache_update(const CacheUpdate& p) {
  for (int64_t i = thread_number() >> p.lanes_shift; i < p.count;
       i += thread_count() >> p.lanes_shift) {
    const Division token = divide(i, p.heads);  // And its head.
    const Division place = divide(token.quotient, p.sequence);
    const int64_t batch = place.quotient;
    const int64_t key = p.starts[batch] + static_cast<int64_t>(place.remainder);
    if (key < 0 || key >= p.keys) continue;
    const int64_t head = batch * p.heads.divisor + token.remainder;
    copy_row(static_cast<const Unit*>(p.rows) + i * p.row_units,
             static_cast<Unit*>(p.cache) + (head * p.keys + key) * p.row_units, p.row_units,
             p.lanes_shift);
  }
}

}  // namespace

#define TESSERA_KERNEL(name, Parameters, body) \
  extern "C" __global__ void __launch_bounds__(256) name(const Parameters p) { body; }
TESSERA_KERNEL(gather_b8, Gather, gather<uint8_t>(p))
TESSERA_KERNEL(gather_b16, Gather, gather<uint16_t>(p))
TESSERA_KERNEL(gather_b32, Gather, gather<uint32_t>(p))
TESSERA_KERNEL(gather_b64, Gather, gather<uint64_t>(p))
TESSERA_KERNEL(gather_b128, Gather, gather<uint4>(p))
TESSERA_KERNEL(pick_b8, Pick, pick<uint8_t>(p))
TESSERA_KERNEL(pick_b16, Pick, pick<uint16_t>(p))
TESSERA_KERNEL(pick_b32, Pick, pick<uint32_t>(p))
TESSERA_KERNEL(pick_b64, Pick, pick<uint64_t>(p))
TESSERA_KERNEL(scatter_along_f32, ScatterAlong, scatter_along<float>(p))
TESSERA_KERNEL(scatter_along_bf16, ScatterAlong, scatter_along<bf16>(p))
TESSERA_KERNEL(cache_update_b8, CacheUpdate, cache_update<uint8_t>(p))
TESSERA_KERNEL(cache_update_b16, CacheUpdate, cache_update<uint16_t>(p))
TESSERA_KERNEL(cache_update_b32, CacheUpdate, cache_update<uint32_t>(p))
TESSERA_KERNEL(cache_update_b64, CacheUpdate, cache_update<uint64_t>(p))
TESSERA_KERNEL(cache_update_b128, CacheUpdate, cache_update<uint4>(p))

}  // namespace tessera::cuda
