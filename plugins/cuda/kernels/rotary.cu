// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al., 2021). A block first makes a table of the cosines and sines
// of its positions, which all rows of a position (the heads of a token) share; then it reads and
// writes x once.
#include "plugins/cuda/kernels/rotary.h"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

// Turns of a pair in one position, in double precision, which large positions need.
__device__ double turns_of(const RotaryParameters& p, int64_t pair) {
  double turns = p.first, base = p.ratio;
  for (int64_t exponent = pair; exponent > 0; exponent >>= 1, base *= base)
    if (exponent & 1) turns *= base;
  if (p.has_divisors) turns /= p.divisors[pair];
  if (!p.stretched) return turns;
  const double argument = turns * p.length + static_cast<double>(pair) * p.index_step;
  const double share = (argument - p.low) * p.inverse_span;
  const double kept = share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
  return turns * (kept + (1.0 - kept) * p.slowed);
}

__device__ int64_t position_index(const RotaryParameters& p, int64_t group) {
  int64_t index = 0;
#pragma unroll
  for (int i = 0; i < kRotaryAxes; ++i) {  // Unrolled: parameters have no dynamic index.
    if (i >= p.num_axes) break;
    const int64_t outer = group / p.size[i];
    index += (group - outer * p.size[i]) * p.step[i];
    group = outer;
  }
  return index;
}

// The part of the work of one block.
struct Tile {
  int64_t first_group, first_row, first_pair;
  int groups, rows, pairs;  // Rows of each group.
};

__device__ Tile tile_of(const RotaryParameters& p) {
  Tile tile;
  tile.first_group = int64_t{blockIdx.x} * p.groups_of_block;
  tile.first_pair = int64_t{blockIdx.y} * kRotaryPairs;
  tile.first_row = blockIdx.z * p.rows_of_block;
  tile.groups = static_cast<int>(min(int64_t{p.groups_of_block}, p.groups - tile.first_group));
  tile.pairs = static_cast<int>(min(int64_t{kRotaryPairs}, p.pairs - tile.first_pair));
  tile.rows = static_cast<int>(min(p.rows_of_block, p.repeat - tile.first_row));
  return tile;
}

// cosine[group][pair] and sine[group][pair] of a tile.
__device__ void make_table(const RotaryParameters& p, const Tile& tile, float* cosine,
                           float* sine) {
  __shared__ double turns[kRotaryPairs];
  __shared__ int32_t positions[kRotaryGroups];
  for (int i = threadIdx.x; i < tile.pairs; i += kRotaryThreads)
    turns[i] = turns_of(p, tile.first_pair + i);
  for (int i = threadIdx.x; i < tile.groups; i += kRotaryThreads)
    positions[i] = p.positions[position_index(p, tile.first_group + i)];
  __syncthreads();
  for (int i = threadIdx.x; i < tile.groups * tile.pairs; i += kRotaryThreads) {
    const int group = i / tile.pairs;
    const double angle = positions[group] * turns[i - group * tile.pairs];
    float s, c;
    sincospif(2.0f * static_cast<float>(angle - rint(angle)), &s, &c);
    cosine[i] = c;
    sine[i] = p.inverse ? -s : s;
  }
  __syncthreads();
}

// Rotates kPairs adjacent pairs of a row. The halves are 2·kPairs adjacent elements of an
// interleaved row, or kPairs elements each of its first and second half.
template <typename T, int kPairs, bool kInterleaved>
__device__ void rotate(const T* x, T* y, int64_t distance, const float* cosine, const float* sine) {
  float in[2][kPairs], out[2][kPairs], c[kPairs], s[kPairs];
  load_vector(x, in[0]);
  load_vector(x + distance, in[1]);
  load_vector(cosine, c);
  load_vector(sine, s);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int a = kInterleaved ? 2 * i : i, b = kInterleaved ? 2 * i + 1 : kPairs + i;
    const float first = in[a / kPairs][a % kPairs], second = in[b / kPairs][b % kPairs];
    out[a / kPairs][a % kPairs] = fmaf(first, c[i], -second * s[i]);
    out[b / kPairs][b % kPairs] = fmaf(first, s[i], second * c[i]);
  }
  store_vector(y, out[0]);
  store_vector(y + distance, out[1]);
}

template <typename T, int kPairs>
__device__ void rotary(const RotaryParameters& p) {
  alignas(16) __shared__ float cosine[kRotaryTable];
  alignas(16) __shared__ float sine[kRotaryTable];
  const Tile tile = tile_of(p);
  make_table(p, tile, cosine, sine);
  const int packs = tile.pairs / kPairs;  // Packs of a row.
  const int items = tile.groups * tile.rows * packs;
  for (int item = threadIdx.x; item < items; item += kRotaryThreads) {
    const int row = item / packs, group = row / tile.rows;
    const int pair = (item - row * packs) * kPairs, entry = group * tile.pairs + pair;
    const int64_t row_of_x =
        (tile.first_group + group) * p.repeat + tile.first_row + (row - group * tile.rows);
    const int64_t column = tile.first_pair + pair;
    const int64_t begin = row_of_x * 2 * p.pairs + (p.interleaved ? 2 * column : column);
    const T* const x = static_cast<const T*>(p.x) + begin;
    T* const y = static_cast<T*>(p.y) + begin;
    if (p.interleaved) {
      rotate<T, kPairs, true>(x, y, kPairs, cosine + entry, sine + entry);
    } else {
      rotate<T, kPairs, false>(x, y, p.pairs, cosine + entry, sine + entry);
    }
  }
}

}  // namespace

#define TESSERA_ROTARY(name, type, pairs)                                                          \
  extern "C" __global__ void __launch_bounds__(kRotaryThreads, 4) name(const RotaryParameters p) { \
    rotary<type, pairs>(p);                                                                        \
  }
TESSERA_ROTARY(rotary_f32, float, 4)
TESSERA_ROTARY(rotary_f32_unaligned, float, 1)
TESSERA_ROTARY(rotary_bf16, bf16, 8)
TESSERA_ROTARY(rotary_bf16_unaligned, bf16, 1)
#undef TESSERA_ROTARY

}  // namespace tessera::cuda
