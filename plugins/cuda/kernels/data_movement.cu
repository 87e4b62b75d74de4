// SPDX-License-Identifier: Apache-2.0
// Copies and transposes: each byte is read once and written once.
#include "plugins/cuda/kernels/data_movement.h"
#include "plugins/cuda/kernels/strided.cuh"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

// Loads of a thread before its first store, so that several are in flight.
constexpr int kBatch = 2;

template <typename Unit>
__device__ void copy_strided(const StridedCopy& p) {
  const Unit* const from = static_cast<const Unit*>(p.from);
  Unit* const to = static_cast<Unit*>(p.to);
  for (int64_t first = thread_number(); first < p.units; first += kBatch * thread_count()) {
    Unit units[kBatch];
    uint64_t indices[kBatch];
    int64_t offsets[2][kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) indices[b] = first + b * thread_count();
    offsets_in(p.space, indices, offsets);
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
      if (first + b * thread_count() < p.units) units[b] = from[offsets[0][b]];
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
      if (first + b * thread_count() < p.units) to[offsets[1][b]] = units[b];
  }
}

// Elements per access of a transpose.
template <typename T, bool vectors>
inline constexpr int kWidth = vectors ? 16 / sizeof(T) : 1;

// A tile of the source, one line a column. Lines are an odd number of 4-byte words apart, so that
// neighbours in a row are in different banks of shared memory.
template <typename T, bool vectors>
struct alignas(16) Tile {
  static constexpr int kSide = transpose_tile(sizeof(T), vectors);
  static constexpr int kPadding = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  T lines[kSide][kSide + kPadding];
};

template <typename T, bool vectors>
__device__ void load_line(const T* from, T* to) {
  if constexpr (vectors) {
    const uint4 bytes = *reinterpret_cast<const uint4*>(from);
    uint32_t* const words = reinterpret_cast<uint32_t*>(to);  // A line is not 16-byte aligned.
    words[0] = bytes.x, words[1] = bytes.y, words[2] = bytes.z, words[3] = bytes.w;
  } else {
    *to = *from;
  }
}

// 4 bytes of row r of a tile.
template <typename T>
__device__ uint32_t line_word(const Tile<T, true>& tile, int c, int r) {
  if constexpr (sizeof(T) == 4) return tile.lines[c][r];
  return tile.lines[c][r] | uint32_t{tile.lines[c + 1][r]} << 16;
}

template <typename T, bool vectors>
__device__ void transpose_tile_at(const T* from, T* to, const Transpose& p, int64_t row,
                                  int64_t column) {
  using Tile = Tile<T, vectors>;
  constexpr int kStep = kWidth<T, vectors>;
  constexpr int kAccesses = Tile::kSide / kStep;  // Accesses to a line or row of the tile.
  __shared__ Tile tile;
  for (int i = threadIdx.x; i < Tile::kSide * kAccesses; i += blockDim.x) {
    const int c = i / kAccesses, r = i % kAccesses * kStep;
    if (column + c < p.columns && row + r < p.rows)
      load_line<T, vectors>(from + (column + c) * p.from_step + row + r, &tile.lines[c][r]);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < Tile::kSide * kAccesses; i += blockDim.x) {
    const int r = i / kAccesses, c = i % kAccesses * kStep;
    if (column + c >= p.columns || row + r >= p.rows) continue;
    const int64_t at = (row + r) * p.to_step + column + c;
    if constexpr (vectors) {
      const auto word = [&](int k) { return line_word(tile, c + k * kStep / 4, r); };
      reinterpret_cast<uint4*>(to)[at / kStep] = make_uint4(word(0), word(1), word(2), word(3));
    } else {
      to[at] = tile.lines[c][r];
    }
  }
}

template <typename T, bool vectors>
__device__ void transpose(const Transpose& p) {
  constexpr int64_t kSide = Tile<T, vectors>::kSide;
  const uint32_t row = blockIdx.x % p.row_tiles, rest = blockIdx.x / p.row_tiles;
  const uint32_t column = rest % p.column_tiles, plane = rest / p.column_tiles;
  uint64_t planes[1] = {plane};
  int64_t at[2][1];
  offsets_in(p.planes, planes, at);
  transpose_tile_at<T, vectors>(static_cast<const T*>(p.from) + at[0][0],
                                static_cast<T*>(p.to) + at[1][0], p, row * kSide, column * kSide);
}

}  // namespace

#define TESSERA_KERNEL(name, Parameters, body) \
  extern "C" __global__ void __launch_bounds__(256) name(const Parameters p) { body; }
TESSERA_KERNEL(copy_strided_b8, StridedCopy, copy_strided<uint8_t>(p))
TESSERA_KERNEL(copy_strided_b16, StridedCopy, copy_strided<uint16_t>(p))
TESSERA_KERNEL(copy_strided_b32, StridedCopy, copy_strided<uint32_t>(p))
TESSERA_KERNEL(copy_strided_b64, StridedCopy, copy_strided<uint64_t>(p))
TESSERA_KERNEL(copy_strided_b128, StridedCopy, copy_strided<uint4>(p))

#define TESSERA_TRANSPOSE(name, T, vectors) \
  TESSERA_KERNEL(name, Transpose, (transpose<T, vectors>(p)))
TESSERA_TRANSPOSE(transpose_b8, uint8_t, false)
TESSERA_TRANSPOSE(transpose_b16, uint16_t, false)
TESSERA_TRANSPOSE(transpose_b32, uint32_t, false)
TESSERA_TRANSPOSE(transpose_b64, uint64_t, false)
TESSERA_TRANSPOSE(transpose_vectors_b16, uint16_t, true)
TESSERA_TRANSPOSE(transpose_vectors_b32, uint32_t, true)

}  // namespace tessera::cuda
