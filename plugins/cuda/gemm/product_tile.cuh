// SPDX-License-Identifier: Apache-2.0
// One tile of a matrix product C = A·B by a block, as product.cu and grouped_product.cu use it. The
// sum of an element runs over k in ascending order, in steps of 16 (bf16) or 1 (f32), whatever the
// tile: its bits depend on its row of A and its column of B alone.
//
// Tiles of A and B lie in shared memory as they lie in global memory, lines of contiguous elements;
// lines are padded by 16 bytes, so that the eight rows of an 8×8 matrix are in different banks. The
// lines of a matrix in global memory are adjacent (Matrix) or chosen by numbers (GatheredMatrix).
#pragma once

#include "plugins/cuda/kernels/mma.cuh"

namespace tessera::cuda {

// -- Tiles --------------------------------------------------------------------------------------

// Where a block's part of a matrix begins, in elements; lines and positions in a line.
struct Origin {
  int line, position;
};

// A matrix in global memory: `lines` lines of `length` contiguous elements.
template <typename T>
struct Matrix {
  const T* data;
  int64_t leading;
  int lines, length;
  bool aligned;

  // How many of the `count` elements at this position exist.
  __device__ int valid(int line, int position, int count) const {
    return line < lines ? max(0, min(count, length - position)) : 0;
  }
  __device__ const T* at(int line, int position) const { return data + line * leading + position; }
};

// A matrix with lines anywhere: line i is number `numbers[i]` of the lines in memory.
template <typename T>
struct GatheredMatrix {
  const T* data;
  const int32_t* numbers;
  int64_t leading;
  int lines, length;
  bool aligned;

  __device__ int valid(int line, int position, int count) const {
    return line < lines ? max(0, min(count, length - position)) : 0;
  }
  __device__ const T* at(int line, int position) const {
    return data + numbers[line] * leading + position;
  }
};

// kLines lines of kLength elements of a matrix.
template <typename T, int kLines, int kLength>
struct Tile {
  static constexpr int kLineCount = kLines, kLineLength = kLength;
  static constexpr int kPitch = kLength + kVector<T>;
  T elements[kLines * kPitch];

  // Copies this part of the matrix, zeros beyond its end; with cp.async where that is possible. A
  // matrix of other elements than the tile's converts them itself.
  template <int kThreads, typename AnyMatrix>
  __device__ void load(const AnyMatrix& matrix, Origin origin) {
    if constexpr (requires { matrix.template convert<kThreads>(*this, origin); }) {
      matrix.template convert<kThreads>(*this, origin);
    } else {
      copy<kThreads>(matrix, origin);
    }
  }

 private:
  template <int kThreads, typename AnyMatrix>
  __device__ void copy(const AnyMatrix& matrix, Origin origin) {
    constexpr int kChunks = kLength / kVector<T>;  // Accesses of 16 bytes in a line.
    static_assert(kLines * kChunks % kThreads == 0);
    if (matrix.aligned) {
#pragma unroll
      for (int i = 0; i < kLines * kChunks / kThreads; ++i) {
        const int chunk = i * kThreads + static_cast<int>(threadIdx.x);
        const int line = chunk / kChunks, position = chunk % kChunks * kVector<T>;
        const int valid = matrix.valid(origin.line + line, origin.position + position, kVector<T>);
        const T* const from =
            valid == 0 ? matrix.data : matrix.at(origin.line + line, origin.position + position);
        copy_async(&elements[line * kPitch + position], from, valid * static_cast<int>(sizeof(T)));
      }
      return;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < kLines * kLength; i += kThreads) {
      const int line = i / kLength, position = i % kLength;
      const int valid = matrix.valid(origin.line + line, origin.position + position, 1);
      elements[line * kPitch + position] =
          valid == 0 ? T(0.0f) : *matrix.at(origin.line + line, origin.position + position);
    }
  }
};

// Tiles of A or B for `kOuter` rows of A or columns of B and kDepth of k. kDepthInLines: whether k
// runs along the lines.
template <typename T, int kOuter, int kDepth, bool kDepthInLines>
struct OperandTile : Tile<T, kDepthInLines ? kOuter : kDepth, kDepthInLines ? kDepth : kOuter> {
  __device__ static Origin origin(int outer, int depth) {
    return kDepthInLines ? Origin{outer, depth} : Origin{depth, outer};
  }
  __device__ const T* at(int outer, int depth) const {
    return &this->elements[kDepthInLines ? outer * this->kPitch + depth
                                         : depth * this->kPitch + outer];
  }
};

template <typename T>
__device__ Matrix<T> matrix_of(const void* data, int64_t offset, int64_t leading, int outer,
                               int depth, bool depth_in_lines, bool aligned) {
  return {static_cast<const T*>(data) + offset, leading, depth_in_lines ? outer : depth,
          depth_in_lines ? depth : outer, aligned};
}

// Floats between rows of sums in shared memory, beside those of the tile.
inline constexpr int kStagePad = 8;

// -- bf16 ---------------------------------------------------------------------------------------

// kSize × kSize of C by eight warps of kSize/4 × kSize/2, or one of 32×32.
template <int kTile, bool kAIsTransposed, bool kBIsTransposed>
struct Bf16Product {
  using Element = bf16;
  static constexpr int kBlocks = 2;  // At least, on a multiprocessor; bounds the registers.
  static constexpr int kSize = kTile, kDepth = 32;
  static constexpr bool kTransposedA = kAIsTransposed, kTransposedB = kBIsTransposed;
  static constexpr int kRowWarps = kSize == 32 ? 1 : 4;
  static constexpr int kColumnWarps = kSize == 32 ? 1 : 2;
  static constexpr int kThreads = 32 * kRowWarps * kColumnWarps;
  static constexpr int kWarpRows = kSize / kRowWarps, kWarpColumns = kSize / kColumnWarps;
  using TileA = OperandTile<bf16, kSize, kDepth, !kTransposedA>;
  using TileB = OperandTile<bf16, kSize, kDepth, kTransposedB>;
  using Sums = float[kWarpRows / 16][kWarpColumns / 8][4];
  // Sixteen rows of each warp are stored in a pass.
  static constexpr int kPasses = kWarpRows / 16, kStagedRows = kRowWarps * 16;
  __device__ static int staged_row(int pass, int r) {
    return r / 16 * kWarpRows + 16 * pass + r % 16;
  }

  __device__ static int row_in_tile() { return threadIdx.x / 32 % kRowWarps * kWarpRows; }
  __device__ static int column_in_tile() { return threadIdx.x / 32 / kRowWarps * kWarpColumns; }

  // The lane's matrix of ldmatrix: bit 0 of its number is 8 rows of A further down, or for B 8
  // further in k; bit 1 the other.
  __device__ static void multiply(const TileA& a, const TileB& b, Sums& sums) {
    const int lane = threadIdx.x % 32;
    const int in_matrix = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
#pragma unroll 1  // More registers would leave room for one block instead of two.
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t rows[kWarpRows / 16][4];
#pragma unroll
      for (int i = 0; i < kWarpRows / 16; ++i) {
        const int row = row_in_tile() + 16 * i + low, depth = k + high;
        load_matrices<kTransposedA>(
            kTransposedA ? a.at(row, depth + in_matrix) : a.at(row + in_matrix, depth), rows[i]);
      }
#pragma unroll
      for (int j = 0; j < kWarpColumns / 16; ++j) {
        const int column = column_in_tile() + 16 * j + high, depth = k + low;
        uint32_t columns[4];
        load_matrices<!kTransposedB>(
            kTransposedB ? b.at(column + in_matrix, depth) : b.at(column, depth + in_matrix),
            columns);
#pragma unroll
        for (int i = 0; i < kWarpRows / 16; ++i) {
          multiply_add(rows[i], columns[0], columns[1], sums[i][2 * j]);
          multiply_add(rows[i], columns[2], columns[3], sums[i][2 * j + 1]);
        }
      }
    }
  }

  template <int kPass>
  __device__ static void stage(const Sums& sums, float* staged) {
    const int lane = threadIdx.x % 32;
    const int row = row_in_tile() / kWarpRows * 16 + lane / 4;
    const int column = column_in_tile() + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kWarpColumns / 8; ++j) {
      float* const to = staged + row * (kSize + kStagePad) + column + 8 * j;
      const float(&x)[4] = sums[kPass][j];
      *reinterpret_cast<float2*>(to) = make_float2(x[0], x[1]);
      *reinterpret_cast<float2*>(to + 8 * (kSize + kStagePad)) = make_float2(x[2], x[3]);
    }
  }
};

// -- f32 ----------------------------------------------------------------------------------------

// kSize × kSize of C by threads of 4×4 elements, with fused multiply-adds.
template <int kTile, bool kAIsTransposed, bool kBIsTransposed>
struct F32Product {
  using Element = float;
  static constexpr int kBlocks = 2;
  static constexpr int kSize = kTile, kDepth = 16;
  static constexpr bool kTransposedA = kAIsTransposed, kTransposedB = kBIsTransposed;
  static constexpr int kThreads = kSize * kSize / 16;
  using TileA = OperandTile<float, kSize, kDepth, !kTransposedA>;
  using TileB = OperandTile<float, kSize, kDepth, kTransposedB>;
  using Sums = float[4][4];
  static constexpr int kPasses = 1, kStagedRows = kSize;
  __device__ static int staged_row(int, int r) { return r; }

  // A thread's rows, and its columns, are kSize / 4 apart: neighbouring threads read neighbours.
  static constexpr int kStep = kSize / 4;
  __device__ static int row_in_tile() { return threadIdx.x / kStep; }
  __device__ static int column_in_tile() { return threadIdx.x % kStep; }

  __device__ static void multiply(const TileA& a, const TileB& b, Sums& sums) {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float rows[4], columns[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rows[i] = *a.at(row_in_tile() + i * kStep, k);
        columns[i] = *b.at(column_in_tile() + i * kStep, k);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(rows[i], columns[j], sums[i][j]);
    }
  }

  template <int kPass>
  __device__ static void stage(const Sums& sums, float* staged) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        staged[(row_in_tile() + i * kStep) * (kSize + kStagePad) + column_in_tile() + j * kStep] =
            sums[i][j];
  }
};

// -- The loop over k ----------------------------------------------------------------------------

// Tiles while the sums are computed, then the sums.
template <typename Method>
union alignas(16) Shared {
  struct {
    typename Method::TileA a[2];
    typename Method::TileB b[2];
  } tiles;
  float staged[Method::kStagedRows * (Method::kSize + kStagePad)];
};

// Adds A·B of a tile to its sums, for the rows of A from `row` on, the columns of B from `column`
// on and `depth` of k. While a step is multiplied, the next is copied. Ends with a barrier.
template <typename Method, typename MatrixA, typename MatrixB>
__device__ void sum_tile(const MatrixA& a, const MatrixB& b, int row, int column, int depth,
                         Shared<Method>& shared, typename Method::Sums& sums) {
  const auto load = [&](int step) {
    const int k = step * Method::kDepth;
    shared.tiles.a[step % 2].template load<Method::kThreads>(a, Method::TileA::origin(row, k));
    shared.tiles.b[step % 2].template load<Method::kThreads>(b, Method::TileB::origin(column, k));
  };
  const int steps = (depth + Method::kDepth - 1) / Method::kDepth;
  if (steps > 0) load(0);
  end_copy_group();
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) load(step + 1);
    end_copy_group();
    wait_for_copies<1>();
    __syncthreads();
    Method::multiply(shared.tiles.a[step % 2], shared.tiles.b[step % 2], sums);
    __syncthreads();  // Before the tile is overwritten.
  }
}

// Brings the sums to shared memory, some rows at a time, and calls store(row_of) for them: staged
// row r is row row_of(r) of the tile. The accumulators of a thread are scattered over the tile, and
// from here each row is written in order. All threads call it; ends with a barrier.
template <typename Method, int kPass = 0, typename Store>
__device__ void store_tile(const typename Method::Sums& sums, float* staged, const Store& store) {
  Method::template stage<kPass>(sums, staged);
  __syncthreads();
  store([](int r) { return Method::staged_row(kPass, r); });
  __syncthreads();  // Before the memory is overwritten.
  if constexpr (kPass + 1 < Method::kPasses) store_tile<Method, kPass + 1>(sums, staged, store);
}

}  // namespace tessera::cuda
