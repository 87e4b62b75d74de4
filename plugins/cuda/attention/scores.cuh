// SPDX-License-Identifier: Apache-2.0
// Shared by the attention kernels: scores in base 2, masks, and the loop over streamed tiles.
#pragma once

#include <cmath>
#include <type_traits>

#include "plugins/cuda/attention/tile.cuh"

namespace tessera::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// One instruction each; relative errors up to 2^-22.
__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// tanh(x) = 1 - 2 / (1 + e^2x), from x·2·log2(e).
__device__ inline float tanh_of(float x) {
  return fmaf(-2.0f, reciprocal(1.0f + exp2_of(x)), 1.0f);
}

// What the two rows of a thread may see: columns of an equal segment.
struct SegmentMask {
  int32_t segment[2];
  const int32_t* column_segments;  // Null: no segments.
  int columns;

  // Replaces elements of 8·N columns from `first` on that have another segment, or for which
  // is_hidden(which row, column).
  template <int N, typename IsHidden>
  __device__ void hide(float (&x)[N][4], int first, float replacement, IsHidden is_hidden) const {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = first + 8 * n + static_cast<int>(threadIdx.x) % 4 * 2 + j;
        int32_t column_segment = 0;
        if (column_segments != nullptr) column_segment = column_segments[min(column, columns - 1)];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const bool same = column_segments == nullptr || column_segment == segment[h];
          if (!same || is_hidden(h, column)) x[n][2 * h + j] = replacement;
        }
      }
    }
  }
};

// Keys of these, by position: those in the window before end[row]. A window is a parameter, and
// takes no register.
struct RowMask : SegmentMask {
  int end[2];

  template <int N>
  __device__ void hide(const AttentionParameters& p, float (&x)[N][4], int first,
                       float replacement) const {
    SegmentMask::hide(x, first, replacement, [&](int h, int column) {
      return column >= min(end[h], p.keys) || column < end[h] - p.window;
    });
  }
};

// Columns [low, high) of these.
struct Mask : SegmentMask {
  int low[2], high[2];

  template <int N>
  __device__ void hide(float (&x)[N][4], int first, float replacement) const {
    SegmentMask::hide(x, first, replacement,
                      [&](int h, int column) { return column < low[h] || column >= high[h]; });
  }
};

// Segments of the resident rows of a block, against those of streamed tiles.
struct SegmentRange {
  SegmentBounds resident;
  const SegmentBounds* streamed;  // Bounds of runs of rows; null: no segments.
  int count;                      // Streamed rows.

  // The bounds of rows [first, min(first + rows, count)).
  __device__ static SegmentBounds over(const SegmentBounds* runs, int first, int rows, int count) {
    const int last = (min(first + rows, count) - 1) / kSegmentRun;
    SegmentBounds all = runs[first / kSegmentRun];
    for (int run = first / kSegmentRun + 1; run <= last; ++run) {
      all.low = min(all.low, runs[run].low);
      all.high = max(all.high, runs[run].high);
    }
    return all;
  }
  // Whether all resident rows and all rows of the tile have one segment.
  template <int kRows>
  __device__ bool one(int tile) const {
    if (streamed == nullptr) return true;
    const SegmentBounds other = over(streamed, tile * kRows, kRows, count);
    return resident.low == resident.high && other.low == other.high && resident.low == other.low;
  }
  // The first tile in [tile, end) that may share a segment with a resident row, or `end`. Each lane
  // of a warp checks one tile.
  template <int kRows>
  __device__ int next(int tile, int end) const {
    if (streamed == nullptr || tile >= end) return min(tile, end);
    for (; tile < end; tile += 32) {
      const int mine = tile + static_cast<int>(threadIdx.x) % 32;
      bool meets = false;
      if (mine < end) {
        const SegmentBounds other = over(streamed, mine * kRows, kRows, count);
        meets = other.low <= resident.high && resident.low <= other.high;
      }
      const unsigned votes = __ballot_sync(0xffffffffu, meets);
      if (votes != 0) return tile + __ffs(static_cast<int>(votes)) - 1;
    }
    return end;
  }
};

__device__ inline int runs_of(int rows) { return (rows + kSegmentRun - 1) / kSegmentRun; }

// The segments of resident rows [first, first + rows) of a batch row. Null bounds: no segments.
__device__ inline SegmentRange segments_of(const SegmentBounds* resident, int resident_count,
                                           const SegmentBounds* streamed, int streamed_count,
                                           int batch, int first, int rows) {
  SegmentRange segments{{}, nullptr, streamed_count};
  if (resident == nullptr || streamed_count == 0) return segments;
  segments.resident =
      SegmentRange::over(resident + batch * runs_of(resident_count), first, rows, resident_count);
  segments.streamed = streamed + batch * runs_of(streamed_count);
  return segments;
}

template <typename T>
__device__ inline HeadRows<T> key_rows(const AttentionParameters& p, int batch, int kv_head,
                                       std::type_identity_t<T>* tensor) {
  return {tensor + batch * p.key_batch_stride + kv_head * p.key_head_stride, p.key_row_stride,
          p.keys, p.head_dim, 1};
}

// Goes over the items first, next(first), … below `end`: load(item, buffer) starts the copies of
// an item, use(item, buffer) runs when they are done, while the next item's copies are under way.
// Copies that were started before belong to the first item.
template <typename Next, typename Load, typename Use>
__device__ inline void for_each_buffered(int first, int end, Next next, Load load, Use use) {
  if (first < end) load(first, 0);
  end_copy_group();
  int buffer = 0;
  for (int item = first; item < end; buffer ^= 1) {
    const int following = next(item);
    if (following < end) load(following, buffer ^ 1);
    end_copy_group();
    wait_for_copies<1>();
    __syncthreads();
    use(item, buffer);
    __syncthreads();  // The buffer is free for the item after the following one.
    item = following;
  }
  wait_for_copies<0>();
  __syncthreads();
}

// KERNEL(type, its name, head width) for all dtypes and widths.
#define TESSERA_ATTENTION_VARIANTS(KERNEL) \
  KERNEL(bf16, bf16, 32)                   \
  KERNEL(bf16, bf16, 64)                   \
  KERNEL(bf16, bf16, 128)                  \
  KERNEL(bf16, bf16, 256)                  \
  KERNEL(float, f32, 32)                   \
  KERNEL(float, f32, 64)                   \
  KERNEL(float, f32, 128)                  \
  KERNEL(float, f32, 256)

}  // namespace tessera::cuda
