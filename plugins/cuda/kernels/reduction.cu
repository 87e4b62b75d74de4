// SPDX-License-Identifier: Apache-2.0
// reduce_sum, reduce_max and absolute_maximum: 2 or 4 bytes an element. reduce_rows: the last axis
// is reduced, threads of a warp or block share a result. reduce_columns: the last axis is kept,
// neighbouring threads have neighbouring results.
#include "plugins/cuda/kernels/reduction.h"
#include "plugins/cuda/kernels/strided.cuh"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

constexpr unsigned kAllLanes = 0xffffffff;

struct Sum {
  static constexpr float kStart = 0.0f;
  __device__ static float combine(float a, float b) { return a + b; }
};
struct Maximum {
  static constexpr float kStart = -__builtin_huge_valf();
  __device__ static float combine(float a, float b) { return a != a || a > b ? a : b; }
};
struct AbsoluteMaximum {
  static constexpr float kStart = 0.0f;
  __device__ static float combine(float a, float b) { return Maximum::combine(a, fabsf(b)); }
};

template <typename T, int width>
__device__ void load(const T* from, bool aligned, float (&to)[width]) {
  if constexpr (width == kVector<T>) {
    if (aligned) return load_vector(from, to);
  }
#pragma unroll
  for (int k = 0; k < width; ++k) to[k] = to_float(from[k]);
}

template <typename Op, int width>
__device__ void combine(const float (&term)[width], float (&values)[width]) {
#pragma unroll
  for (int k = 0; k < width; ++k) values[k] = Op::combine(values[k], term[k]);
}

constexpr int kBatch = 4;  // Loads in flight.

// Combines `terms` terms that are `step` elements apart with `values`, one for each element of an
// access.
template <typename Op, typename T, int width>
__device__ void combine_run(bool aligned, const T* from, int64_t terms, int64_t step,
                            float (&values)[width]) {
  float term[kBatch][width];
#pragma unroll 1
  for (; terms >= kBatch; terms -= kBatch, from += kBatch * step) {
#pragma unroll
    for (int b = 0; b < kBatch; ++b) load<T>(from + b * step, aligned, term[b]);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) combine<Op>(term[b], values);
  }
#pragma unroll 1
  for (; terms > 0; --terms, from += step) {
    load<T>(from, aligned, term[0]);
    combine<Op>(term[0], values);
  }
}

// Combines terms number `begin`, begin + 2^shift, … below `end`. Offsets count `unit` elements. In
// one dimension no offset needs a division, with which sums of columns take 1.6 times as long.
template <typename Op, typename T, int width>
__device__ void combine_terms(const Reduce& p, const T* from, int64_t begin, int64_t end, int shift,
                              int unit, float (&values)[width]) {
  const int64_t step = int64_t{1} << shift;
  if (p.reduced.rank == 1) {
    const int64_t stride = p.reduced.strides[0][0] * unit;
    return combine_run<Op>(p.aligned, from + begin * stride, (end - begin + step - 1) >> shift,
                           stride << shift, values);
  }
#pragma unroll 1
  for (int64_t first = begin; first < end; first += kBatch * step) {
    uint64_t indices[kBatch];
    int64_t offsets[1][kBatch];
    float terms[kBatch][width];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) indices[b] = first + b * step;
    offsets_in(p.reduced, indices, offsets);
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
      if (first + b * step < end) load<T>(from + offsets[0][b] * unit, p.aligned, terms[b]);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (first + b * step >= end) return;
      combine<Op>(terms[b], values);
    }
  }
}

__device__ void store(const Reduce& p, int64_t at, float value) {
  if (p.to_f32) {
    static_cast<float*>(p.to)[at] = value;
  } else {
    static_cast<bf16*>(p.to)[at] = from_float<bf16>(value);
  }
}

// Combines the values of `threads` neighbouring threads in the first of them. All threads of the
// block call it.
template <typename Op>
__device__ float combined(float value, int threads) {
  for (int step = min(threads, 32) >> 1; step > 0; step >>= 1)
    value = Op::combine(value, __shfl_xor_sync(kAllLanes, value, step));
  if (threads <= 32) return value;
  __shared__ float warps[kReduceThreads / 32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int w = 1; w < kReduceThreads / 32; ++w) value = Op::combine(value, warps[w]);
  return value;
}

template <typename Op, typename T, int width>
__device__ void reduce_rows(const Reduce& p) {
  const int lanes = 1 << p.lanes_shift, lane = threadIdx.x & (lanes - 1);
  const int64_t result = thread_number() >> p.lanes_shift;
  float values[width];
#pragma unroll
  for (int k = 0; k < width; ++k) values[k] = Op::kStart;
  if (result < p.results) {
    const T* const from = static_cast<const T*>(p.from) + offset_in(p.kept, result);
    const int64_t begin = blockIdx.y * p.piece, end = min(begin + p.piece, p.terms);
    combine_terms<Op>(p, from, begin + lane, end, p.lanes_shift, width, values);
    if (blockIdx.y + 1 == p.pieces)
      for (int i = lane; i < p.tail; i += lanes)
        values[0] = Op::combine(values[0], to_float(from[p.terms * width + i]));
  }
#pragma unroll
  for (int k = 1; k < width; ++k) values[0] = Op::combine(values[0], values[k]);
  const float value = combined<Op>(values[0], lanes);
  if (lane == 0 && result < p.results) store(p, result * p.pieces + blockIdx.y, value);
}

// Block (x, y): a tile of the columns of a result, and piece y.
template <typename Op, typename T, int width>
__device__ void reduce_columns(const Reduce& p) {
  const int lanes = 1 << p.lanes_shift, lane = threadIdx.x & (lanes - 1);
  const int row = threadIdx.x >> p.lanes_shift, rows_shift = kReduceShift - p.lanes_shift;
  const uint32_t result = blockIdx.x / p.tiles, tile = blockIdx.x % p.tiles;
  const int64_t column = ((int64_t{tile} << p.lanes_shift) + lane) * width;
  float values[width];
#pragma unroll
  for (int k = 0; k < width; ++k) values[k] = Op::kStart;
  if (column < p.columns) {
    const T* const from = static_cast<const T*>(p.from) + offset_in(p.kept, result) + column;
    const int64_t begin = blockIdx.y * p.piece, end = min(begin + p.piece, p.terms);
    combine_terms<Op>(p, from, begin + row, end, rows_shift, 1, values);
  }
  // Halves of the rows are combined until one is left. Neighbouring threads use different banks.
  __shared__ float shared[width][kReduceThreads];
#pragma unroll
  for (int k = 0; k < width; ++k) shared[k][threadIdx.x] = values[k];
  for (int half = 1 << rows_shift >> 1; half > 0; half >>= 1) {
    __syncthreads();
    if (row >= half) continue;
#pragma unroll
    for (int k = 0; k < width; ++k)
      shared[k][threadIdx.x] = values[k] =
          Op::combine(values[k], shared[k][threadIdx.x + (half << p.lanes_shift)]);
  }
  if (row > 0 || column >= p.columns) return;
  const int64_t at = (blockIdx.y * p.results + result) * p.columns + column;
#pragma unroll
  for (int k = 0; k < width; ++k) store(p, at + k, values[k]);
}

}  // namespace

// At least two blocks on a multiprocessor: told so, ptxas takes the registers it needs and does not
// spill.
#define TESSERA_REDUCE(name, function, Op, T)                                            \
  extern "C" __global__ void __launch_bounds__(kReduceThreads, 2) name(const Reduce p) { \
    p.wide ? function<Op, T, kVector<T>>(p) : function<Op, T, 1>(p);                     \
  }
TESSERA_REDUCE(reduce_rows_sum_f32, reduce_rows, Sum, float)
TESSERA_REDUCE(reduce_rows_sum_bf16, reduce_rows, Sum, bf16)
TESSERA_REDUCE(reduce_rows_max_f32, reduce_rows, Maximum, float)
TESSERA_REDUCE(reduce_rows_max_bf16, reduce_rows, Maximum, bf16)
TESSERA_REDUCE(reduce_rows_max_abs_f32, reduce_rows, AbsoluteMaximum, float)
TESSERA_REDUCE(reduce_rows_max_abs_bf16, reduce_rows, AbsoluteMaximum, bf16)
TESSERA_REDUCE(reduce_columns_sum_f32, reduce_columns, Sum, float)
TESSERA_REDUCE(reduce_columns_sum_bf16, reduce_columns, Sum, bf16)
TESSERA_REDUCE(reduce_columns_max_f32, reduce_columns, Maximum, float)
TESSERA_REDUCE(reduce_columns_max_bf16, reduce_columns, Maximum, bf16)

}  // namespace tessera::cuda
