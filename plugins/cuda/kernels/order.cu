// SPDX-License-Identifier: Apache-2.0
// argsort, top_k and cumulative_sum. Values become keys of 32 bits with the same order, and a key
// is followed by its position, so that no two are equal and ties go to the lower position.
#include "plugins/cuda/kernels/order.h"
#include "plugins/cuda/kernels/strided.cuh"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

constexpr unsigned kAllLanes = 0xffffffff;
constexpr uint64_t kLastKey = ~uint64_t{0};  // After every element.

// NaN is the largest; -0 is 0.
__device__ uint32_t key_of(float value) {
  if (isnan(value)) return 0xffffffffu;
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ uint32_t key_of(bf16 value) { return key_of(to_float(value)); }
__device__ uint32_t key_of(int32_t value) { return static_cast<uint32_t>(value) ^ 0x80000000u; }

template <typename T>
struct Row {
  const T* x;
  int32_t* result;
  int64_t stride;
  uint32_t flip;

  __device__ Row(const Order& p, int64_t row) {
    const Division at = divide(row, p.inner);
    stride = static_cast<int64_t>(p.inner.divisor);
    x = static_cast<const T*>(p.x) + at.quotient * p.size * stride + at.remainder;
    result = p.result + at.quotient * p.kept * stride + at.remainder;
    flip = p.flip;
  }
  __device__ uint64_t key(int64_t i) const {
    return static_cast<uint64_t>(key_of(x[i * stride]) ^ flip) << 32 | static_cast<uint64_t>(i);
  }
  __device__ void store(int64_t i, uint64_t key) const {
    result[i * stride] = static_cast<int32_t>(key);
  }
};

// Batcher's bitonic sort (1968) of `count` keys, a power of two. All threads of the block call it;
// begins and ends with a barrier.
__device__ void sort_keys(uint64_t* keys, int64_t count) {
  for (int64_t length = 2; length <= count; length *= 2) {
    for (int64_t step = length / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int64_t pair = threadIdx.x; pair < count / 2; pair += blockDim.x) {
        const int64_t low = 2 * pair - (pair & (step - 1)), high = low + step;
        const uint64_t a = keys[low], b = keys[high];
        const bool rising = (low & length) == 0;
        if ((a > b) != rising) continue;
        keys[low] = b, keys[high] = a;
      }
    }
  }
  __syncthreads();
}

template <typename T>
__device__ void argsort(const Order& p) {
  extern __shared__ uint64_t shared_keys[];
  uint64_t* const keys = p.keys != nullptr ? p.keys + blockIdx.x * p.padded : shared_keys;
  for (int64_t number = blockIdx.x; number < p.rows; number += gridDim.x) {
    const Row<T> row(p, number);
    for (int64_t i = threadIdx.x; i < p.padded; i += blockDim.x)
      keys[i] = i < p.size ? row.key(i) : kLastKey;
    sort_keys(keys, p.padded);
    for (int64_t i = threadIdx.x; i < p.kept; i += blockDim.x) row.store(i, keys[i]);
    __syncthreads();
  }
}

// The smallest key of the threads of a row, which are a warp or the block.
__device__ uint64_t smallest_of_lanes(uint64_t key, int lanes) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    key = min(key, __shfl_xor_sync(kAllLanes, key, distance));
  if (lanes == 32) return key;
  __shared__ uint64_t parts[kTopKThreads / 32];
  __syncthreads();  // The readers of the last call are done.
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = key;
  __syncthreads();
  for (int warp = 0; warp < lanes / 32; ++warp) key = min(key, parts[warp]);
  return key;
}

template <typename T>
__device__ void top_k(const Order& p) {
  const int lanes = 1 << p.lanes_shift, lane = threadIdx.x & (lanes - 1);
  const int64_t number = thread_number() >> p.lanes_shift;
  if (number >= p.rows) return;  // All threads of a row.
  const Row<T> row(p, number);
  const int64_t count = count_steps(lane, p.size, p.lanes_shift);
  uint64_t last = 0;
  for (int64_t place = 0; place < p.kept; ++place) {
    uint64_t next = kLastKey;
#pragma unroll 4
    for (int64_t step = 0; step < count; ++step) {
      const uint64_t key = row.key(lane + (step << p.lanes_shift));
      if (place == 0 || key > last) next = min(next, key);
    }
    last = smallest_of_lanes(next, lanes);
    if (lane == 0) row.store(place, last);
  }
}

template <typename Sum>
__device__ Sum widened(Sum x) {
  return x;
}
__device__ float widened(bf16 x) { return to_float(x); }
template <typename T>
__device__ T narrowed(uint32_t x) {
  return x;
}
template <typename T>
__device__ T narrowed(float x) {
  return from_float<T>(x);
}

// Threads of a column have adjacent parts of the axis. Sums of threads are added over a warp and
// then over warps, always in this order.
template <typename T, typename Sum>
__device__ void cumulative_sum(const CumulativeSum& p) {
  __shared__ Sum totals[kSumThreads / 32][1 << kSumColumnsShift];
  const int columns = 1 << p.columns_shift, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int column = threadIdx.x & (columns - 1), part = threadIdx.x >> p.columns_shift;
  const Division block = divide(blockIdx.x, p.blocks);
  const int64_t inner = (block.remainder << p.columns_shift) + column;
  const int64_t size = inner < p.inner ? p.size : 0;
  const int64_t row = block.quotient * p.size * p.inner + inner;
  const auto place = [&](int64_t step) {
    return row + (p.reverse ? size - 1 - step : step) * p.inner;
  };
  Sum before = 0;  // Sum of earlier steps.
  const int64_t tile = int64_t{kSumItems} * (blockDim.x >> p.columns_shift);
  for (int64_t begin = 0; begin < p.size; begin += tile) {
    const int64_t first = begin + int64_t{kSumItems} * part;
    Sum items[kSumItems], sum = 0;
#pragma unroll
    for (int i = 0; i < kSumItems; ++i) {
      const Sum earlier = sum;
      if (first + i < size) sum += widened(static_cast<const T*>(p.x)[place(first + i)]);
      items[i] = p.exclusive ? earlier : sum;
    }
    for (int distance = columns; distance < 32; distance *= 2) {
      const Sum lower = __shfl_up_sync(kAllLanes, sum, distance);
      if (lane >= distance) sum = lower + sum;
    }
    const Sum lower = __shfl_up_sync(kAllLanes, sum, columns);
    Sum offset = before;
    if (lane >= 32 - columns) totals[warp][column] = sum;
    __syncthreads();
    for (int w = 0; w < kSumThreads / 32; ++w) {
      if (w == warp) offset = before;
      before += totals[w][column];
    }
    if (lane >= columns) offset += lower;
#pragma unroll
    for (int i = 0; i < kSumItems; ++i)
      if (first + i < size) static_cast<T*>(p.y)[place(first + i)] = narrowed<T>(offset + items[i]);
    __syncthreads();  // The readers of `totals` are done.
  }
}

}  // namespace

#define TESSERA_ORDER(name, type)                                                            \
  extern "C" __global__ void __launch_bounds__(kSortThreads) argsort_##name(const Order p) { \
    argsort<type>(p);                                                                        \
  }                                                                                          \
  extern "C" __global__ void __launch_bounds__(kTopKThreads) top_k_##name(const Order p) {   \
    top_k<type>(p);                                                                          \
  }
TESSERA_ORDER(f32, float)
TESSERA_ORDER(bf16, bf16)
TESSERA_ORDER(i32, int32_t)
#undef TESSERA_ORDER

#define TESSERA_SUM(name, type, sum)                        \
  extern "C" __global__ void __launch_bounds__(kSumThreads) \
      cumulative_sum_##name(const CumulativeSum p) {        \
    cumulative_sum<type, sum>(p);                           \
  }
TESSERA_SUM(f32, float, float)
TESSERA_SUM(bf16, bf16, float)
TESSERA_SUM(i32, uint32_t, uint32_t)  // Wraps around.
#undef TESSERA_SUM

}  // namespace tessera::cuda
