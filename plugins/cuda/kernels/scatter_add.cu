// SPDX-License-Identifier: Apache-2.0
// scatter_add, the gradient of an embedding, in a fixed order of sums and without atomics: the
// updates are sorted by row, and each row's are summed in their order (the way of PyTorch's
// embedding_dense_backward). Reads each update once, 2 or 4 bytes an element.
#include "plugins/cuda/kernels/scatter_add.h"
#include "plugins/cuda/kernels/strided.cuh"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

constexpr unsigned kAllLanes = 0xffffffff;
constexpr int kWarps = 8;

__device__ int64_t row_of(const SelectedRows& p, int64_t update) {
  const int64_t row = p.ids[update] - p.first;
  if (row < 0 || row >= p.rows) return p.all_rows;
  return divide(update, p.ids_of_batch).quotient * p.rows + row;
}

// The part of the updates that one warp places, in groups of 32.
struct WarpPart {
  int64_t begin, end;
  __device__ explicit WarpPart(const SortPass& p) {
    const int64_t length = p.part / kWarps;
    begin = blockIdx.x * p.part + threadIdx.x / 32 * length;
    end = min(begin + length, p.updates);
  }
};

// One update of a group, and which lanes of the warp have the same digit.
struct Sorted {
  bool valid;
  int32_t update;
  int digit;
  unsigned peers;

  __device__ Sorted(const SortPass& p, int64_t position, int64_t end) {
    valid = position < end;
    update = 0, digit = 0;
    if (valid) {
      update = p.order == nullptr ? static_cast<int32_t>(position) : p.order[position];
      digit = row_of(p.selected, update) >> p.shift & (kDigits - 1);
    }
    peers = __ballot_sync(kAllLanes, valid);
#pragma unroll
    for (int bit = 0; bit < kDigitBits; ++bit) {
      const bool set = digit >> bit & 1;
      const unsigned others = __ballot_sync(kAllLanes, set);
      peers &= set ? others : ~others;
    }
  }
  // How many lower lanes have the digit.
  __device__ int rank() const { return __popc(peers & ((1u << threadIdx.x % 32) - 1)); }
  __device__ bool leads() const { return valid && rank() == 0; }
};

using Counts = uint32_t[kWarps][kDigits];

// How often each warp of the block has each digit. All threads call it; ends with a barrier.
__device__ void count_digits(const SortPass& p, Counts& counts) {
  for (int warp = 0; warp < kWarps; ++warp) counts[warp][threadIdx.x] = 0;
  __syncthreads();
  const WarpPart part(p);
  for (int64_t group = part.begin; group < part.end; group += 32) {
    const Sorted item(p, group + threadIdx.x % 32, part.end);
    if (item.leads()) counts[threadIdx.x / 32][item.digit] += __popc(item.peers);
    __syncwarp();
  }
  __syncthreads();
}

// The sum of `value` over lower threads of the block. All threads call it.
__device__ uint32_t sum_before(uint32_t value) {
  __shared__ uint32_t warp_sums[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t sum = value;
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t lower = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += lower;
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += warp_sums[w];
  return sum - value;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kDigits) scatter_add_count(const SortPass p) {
  __shared__ Counts counts;
  count_digits(p, counts);
  uint32_t sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += counts[warp][threadIdx.x];
  p.counts[blockIdx.x * kDigits + threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(kDigits) scatter_add_place(const SortPass p) {
  __shared__ Counts counts;
  count_digits(p, counts);
  // Counts of digit threadIdx.x: in earlier blocks, and in all.
  uint32_t earlier = 0, all = 0;
#pragma unroll 8
  for (uint32_t block = 0; block < gridDim.x; ++block) {
    const uint32_t count = p.counts[block * kDigits + threadIdx.x];
    if (block < blockIdx.x) earlier += count;
    all += count;
  }
  uint32_t place = sum_before(all) + earlier;
  for (int warp = 0; warp < kWarps; ++warp) {
    const uint32_t count = counts[warp][threadIdx.x];
    counts[warp][threadIdx.x] = place;
    place += count;
  }
  __syncthreads();
  const WarpPart part(p);
  uint32_t* const places = counts[threadIdx.x / 32];
  for (int64_t group = part.begin; group < part.end; group += 32) {
    const Sorted item(p, group + threadIdx.x % 32, part.end);
    if (item.valid) p.next_order[places[item.digit] + item.rank()] = item.update;
    __syncwarp();
    if (item.leads()) places[item.digit] += __popc(item.peers);
    __syncwarp();
  }
}

namespace {

template <typename T, int width>
__device__ void load(const T* from, float (&to)[width]) {
  if constexpr (width == 1) {
    to[0] = to_float(*from);
  } else {
    load_vector(from, to);
  }
}
template <typename T, int width>
__device__ void store(T* to, const float (&from)[width]) {
  if constexpr (width == 1) {
    *to = from_float<T>(from[0]);
  } else {
    store_vector(to, from);
  }
}

__device__ int64_t sorted_key(const ScatterAdd& p, int64_t position) {
  return row_of(p.selected, p.order[position]);
}

// A chunk's updates and their keys, with the keys of its neighbours; -1 past the ends.
struct Chunk {
  int64_t keys[kSumChunk + 2];  // keys[j + 1] of update j.
  int32_t updates[kSumChunk];

  __device__ void load(const ScatterAdd& p, int64_t begin) {
    for (int j = threadIdx.x; j < kSumChunk + 2; j += blockDim.x) {
      const int64_t position = begin + j - 1;
      const bool inside = position >= 0 && position < p.count;
      keys[j] = inside ? sorted_key(p, position) : -1;
      if (inside && j > 0 && j <= kSumChunk) updates[j - 1] = p.order[position];
    }
    __syncthreads();
  }
};

// Where the sums of columns [column, column + width) go.
template <typename T, int width>
struct Sums {
  const ScatterAdd& p;
  int64_t column;
  float sum[width] = {};

  __device__ void add(const float (&values)[width]) {
#pragma unroll
    for (int k = 0; k < width; ++k) sum[k] += values[k];
  }
  __device__ void store_row(int64_t row) {
    store<T, width>(static_cast<T*>(p.result) + row * p.columns + column, sum);
    clear();
  }
  __device__ void store_partial(int64_t chunk, bool last) {
    store<float, width>(p.partial + (2 * chunk + last) * p.columns + column, sum);
    clear();
  }
  __device__ void clear() {
#pragma unroll
    for (int k = 0; k < width; ++k) sum[k] = 0.0f;
  }
};

template <typename T, int width>
__device__ void sum_chunk(const ScatterAdd& p) {
  __shared__ Chunk chunk;
  const int64_t number = blockIdx.x, begin = number * kSumChunk;
  chunk.load(p, begin);
  const int64_t column = (blockIdx.y * static_cast<int64_t>(blockDim.x) + threadIdx.x) * width;
  if (column >= p.columns) return;
  const T* const updates = static_cast<const T*>(p.updates) + column;
  const int count = static_cast<int>(min(p.count - begin, int64_t{kSumChunk}));
  Sums<T, width> sums{p, column};
  bool earlier = chunk.keys[0] == chunk.keys[1];  // An earlier chunk began this row.
  constexpr int kBatch = 4;
  for (int first = 0; first < count; first += kBatch) {
    float values[kBatch][width];
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
      if (first + b < count)
        load<T, width>(updates + chunk.updates[first + b] * p.columns, values[b]);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int j = first + b;
      if (j >= count || chunk.keys[j + 1] == p.selected.all_rows)
        return;  // The rest is outside the axis.
      sums.add(values[b]);
      const bool later = chunk.keys[j + 2] == chunk.keys[j + 1];
      if (later && j + 1 < count) continue;
      if (earlier || later) {
        sums.store_partial(number, !earlier);
      } else {
        sums.store_row(chunk.keys[j + 1]);
      }
      earlier = false;
    }
  }
}

// Chunk `number` joins the row that it begins and does not end.
template <typename T, int width>
__device__ void join_chunks(const ScatterAdd& p) {
  const int64_t number = blockIdx.x, begin = number * kSumChunk, end = begin + kSumChunk;
  const int64_t column = (blockIdx.y * static_cast<int64_t>(blockDim.x) + threadIdx.x) * width;
  if (end >= p.count || column >= p.columns) return;
  const int64_t row = sorted_key(p, end);
  if (row == p.selected.all_rows || sorted_key(p, end - 1) != row) return;
  if (begin > 0 && sorted_key(p, begin - 1) == row) return;
  // The chunks (number, stop) begin with the row.
  int64_t known = number + 1, stop = (p.count + kSumChunk - 1) / kSumChunk;
  while (known + 1 < stop) {
    const int64_t middle = (known + stop) / 2;
    (sorted_key(p, middle * kSumChunk) == row ? known : stop) = middle;
  }
  Sums<T, width> sums{p, column};
  const float* const partial = p.partial + column;
  const auto add = [&](int64_t slot) {
    float values[width];
    load<float, width>(partial + slot * p.columns, values);
    sums.add(values);
  };
  add(2 * number + 1);
#pragma unroll 4
  for (int64_t chunk = number + 1; chunk < stop; ++chunk) add(2 * chunk);
  sums.store_row(row);
}

}  // namespace

#define TESSERA_SUM(name, body) \
  extern "C" __global__ void __launch_bounds__(256) name(const ScatterAdd p) { body; }
TESSERA_SUM(scatter_add_sum_f32, (p.vectors ? sum_chunk<float, 4>(p) : sum_chunk<float, 1>(p)))
TESSERA_SUM(scatter_add_sum_bf16, (p.vectors ? sum_chunk<bf16, 8>(p) : sum_chunk<bf16, 1>(p)))
TESSERA_SUM(scatter_add_join_f32, (p.vectors ? join_chunks<float, 4>(p) : join_chunks<float, 1>(p)))
TESSERA_SUM(scatter_add_join_bf16, (p.vectors ? join_chunks<bf16, 8>(p) : join_chunks<bf16, 1>(p)))

}  // namespace tessera::cuda
