// SPDX-License-Identifier: Apache-2.0
// The reference product: batches of A·B of any size, stride and alignment. The sum of an element
// runs over k in ascending order, in steps of 16 (bf16) or 1 (f32), whatever the tile: its bits
// depend on its row of A and its column of B alone.
//
// A block computes one tile of C. Tiles of A and B lie in shared memory as they lie in global
// memory, lines of contiguous elements; lines are padded by 16 bytes, so that the eight rows of an
// 8×8 matrix are in different banks.
#include "plugins/cuda/gemm/product_parameters.h"
#include "plugins/cuda/kernels/mma.cuh"

namespace tessera::cuda {
namespace {

// -- Results ------------------------------------------------------------------------------------

__device__ float load_element(const void* from, int64_t i, bool is_bf16) {
  return is_bf16 ? to_float(static_cast<const bf16*>(from)[i]) : static_cast<const float*>(from)[i];
}
__device__ void store_element(void* to, int64_t i, bool is_bf16, float x) {
  if (is_bf16)
    static_cast<bf16*>(to)[i] = from_float<bf16>(x);
  else
    static_cast<float*>(to)[i] = x;
}

constexpr float kGeluSlope = 0.7978845608f, kGeluCubic = 0.044715f;

__device__ float activated(Activation activation, float x) {
  if (activation == Activation::kSilu) return x / (1.0f + expf(-x));
  return 0.5f * x * (1.0f + tanhf(kGeluSlope * (x + kGeluCubic * x * x * x)));
}

__device__ float slope_of(Activation activation, float x) {
  if (activation == Activation::kSiluGradient) {
    const float s = 1.0f / (1.0f + expf(-x));
    return s * (1.0f + x * (1.0f - s));
  }
  const float t = tanhf(kGeluSlope * (x + kGeluCubic * x * x * x));
  return 0.5f * (1.0f + t) +
         0.5f * x * (1.0f - t * t) * kGeluSlope * (1.0f + 3.0f * kGeluCubic * x * x);
}

// What is stored at element `i` of C, in this column, for the sum x.
__device__ float finished(const ProductParameters& p, float x, int64_t i, int column) {
  if (p.bias != nullptr) x += load_element(p.bias, column, p.c_is_bf16);
  if (p.saved != nullptr) store_element(p.saved, i, p.c_is_bf16, x);
  if (p.activation == Activation::kGelu || p.activation == Activation::kSilu)
    x = activated(p.activation, x);
  else if (p.activation != Activation::kNone)
    x *= slope_of(p.activation, load_element(p.slopes, i, p.c_is_bf16));
  if (p.addend != nullptr) x += load_element(p.addend, i, p.c_is_bf16);
  return x;
}

// Stores rows of a tile of C whose sums lie in shared memory, lines of kSize + kStagePad floats:
// the accumulators of a thread are scattered over the tile, and from here each row is written in
// order. Staged row r is row row_of(r) of C.
constexpr int kStagePad = 8;
template <int kThreads, int kSize, typename RowOf>
__device__ void store_rows(const ProductParameters& p, int64_t offset, int column, int rows,
                           const float* staged, const RowOf& row_of) {
  constexpr int kPitch = kSize + kStagePad;
  if (p.c_is_plain) {  // 16 or 32 bytes at a time.
#pragma unroll 1
    for (int chunk = threadIdx.x; chunk < rows * (kSize / 8); chunk += kThreads) {
      const int r = chunk / (kSize / 8), first = chunk % (kSize / 8) * 8;
      const int row = row_of(r);
      if (row >= p.m || column + first >= p.n) continue;
      const float* const from = staged + r * kPitch + first;
      const int64_t i = offset + row * p.c_leading + column + first;
      float low[4], high[4];
      load_vector(from, low);
      load_vector(from + 4, high);
      if (p.c_is_bf16) {
        const float all[8] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
        store_vector(static_cast<bf16*>(p.c) + i, all);
      } else {
        store_vector(static_cast<float*>(p.c) + i, low);
        store_vector(static_cast<float*>(p.c) + i + 4, high);
      }
    }
    return;
  }
#pragma unroll 1
  for (int e = threadIdx.x; e < rows * kSize; e += kThreads) {
    const int row = row_of(e / kSize), c = column + e % kSize;
    if (row >= p.m || c >= p.n) continue;
    const int64_t i = offset + row * p.c_leading + c;
    store_element(p.c, i, p.c_is_bf16, finished(p, staged[e / kSize * kPitch + e % kSize], i, c));
  }
}

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

// kLines lines of kLength elements of a matrix.
template <typename T, int kLines, int kLength>
struct Tile {
  static constexpr int kPitch = kLength + kVector<T>;
  T elements[kLines * kPitch];

  // Copies this part of the matrix, zeros beyond its end; with cp.async where that is possible.
  template <int kThreads>
  __device__ void load(const Matrix<T>& matrix, Origin origin) {
    constexpr int kChunks = kLength / kVector<T>;  // Of 16 bytes, in a line.
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

template <typename Method, int kPass = 0>
__device__ void store_tile(const ProductParameters& p, int64_t offset, int row, int column,
                           const typename Method::Sums& sums, float* staged) {
  Method::template stage<kPass>(sums, staged);
  __syncthreads();
  store_rows<Method::kThreads, Method::kSize>(
      p, offset, column, Method::kStagedRows, staged,
      [&](int r) { return row + Method::staged_row(kPass, r); });
  __syncthreads();  // Before the memory is overwritten.
  if constexpr (kPass + 1 < Method::kPasses)
    store_tile<Method, kPass + 1>(p, offset, row, column, sums, staged);
}

// One tile of one product of the batch. While a step is multiplied, the next is copied.
template <typename Method>
__device__ void product_tile(const ProductParameters& p, int64_t batch, Shared<Method>& shared) {
  using T = typename Method::Element;
  constexpr int kSize = Method::kSize, kDepth = Method::kDepth;
  const int tiles = (p.n + kSize - 1) / kSize;
  const int row = static_cast<int>(blockIdx.x) / tiles * kSize;
  const int column = static_cast<int>(blockIdx.x) % tiles * kSize;
  const Matrix<T> a = matrix_of<T>(p.a, batch * p.a_stride, p.a_leading, p.m, p.k,
                                   !Method::kTransposedA, p.a_aligned);
  const Matrix<T> b = matrix_of<T>(p.b, batch * p.b_stride, p.b_leading, p.n, p.k,
                                   Method::kTransposedB, p.b_aligned);
  const auto load = [&](int step) {
    const int depth = step * kDepth;
    shared.tiles.a[step % 2].template load<Method::kThreads>(a, Method::TileA::origin(row, depth));
    shared.tiles.b[step % 2].template load<Method::kThreads>(b,
                                                             Method::TileB::origin(column, depth));
  };
  const int steps = (p.k + kDepth - 1) / kDepth;
  typename Method::Sums sums = {};
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
  store_tile<Method>(p, batch * p.c_stride, row, column, sums, shared.staged);
}

template <typename Method>
__device__ void products(const ProductParameters& p) {
  __shared__ Shared<Method> shared;
  for (int64_t batch = blockIdx.z; batch < p.batches; batch += gridDim.z)
    product_tile<Method>(p, batch, shared);
}

// An element of a strided array, by its number.
__device__ int64_t strided_offset(const PackParameters& p, const int64_t* strides, int64_t i) {
  int64_t offset = 0;
#pragma unroll
  for (int d = PackParameters::kDimensions - 1; d >= 0; --d) {
    if (d >= p.dimensions) continue;
    offset += i % p.sizes[d] * strides[d];
    i /= p.sizes[d];
  }
  return offset;
}

template <typename Word>
__device__ void pack(const PackParameters& p) {
  for (int64_t i = thread_number(); i < p.elements; i += thread_count())
    static_cast<Word*>(p.to)[strided_offset(p, p.to_strides, i)] =
        static_cast<const Word*>(p.from)[strided_offset(p, p.from_strides, i)];
}

}  // namespace

// product_<dtype>_<layout of A, then B: n as it is, t transposed>_<tile>.
#define TESSERA_PRODUCT(Method, name, size, layouts, a, b)                               \
  extern "C" __global__ void __launch_bounds__(Method<size, a, b>::kThreads,             \
                                               Method<size, a, b>::kBlocks)              \
      product_##name##_##layouts##_##size(const __grid_constant__ ProductParameters p) { \
    products<Method<size, a, b>>(p);                                                     \
  }
#define TESSERA_PRODUCTS(Method, name, size)            \
  TESSERA_PRODUCT(Method, name, size, nn, false, false) \
  TESSERA_PRODUCT(Method, name, size, nt, false, true)  \
  TESSERA_PRODUCT(Method, name, size, tn, true, false)  \
  TESSERA_PRODUCT(Method, name, size, tt, true, true)
TESSERA_PRODUCTS(Bf16Product, bf16, 32)
TESSERA_PRODUCTS(Bf16Product, bf16, 128)
TESSERA_PRODUCTS(F32Product, f32, 32)
TESSERA_PRODUCTS(F32Product, f32, 64)

// The epilogue of a product that lies in A, which is like C and may be C: a pass of its own, in
// which each element is read and written once more.
extern "C" __global__ void __launch_bounds__(256)
    product_epilogue(const __grid_constant__ ProductParameters p) {
  const int64_t size = static_cast<int64_t>(p.m) * p.n;
  for (int64_t i = thread_number(); i < p.batches * size; i += thread_count()) {
    const int64_t row = i % size / p.n;
    const int column = static_cast<int>(i % p.n);
    const int64_t at = i / size * p.c_stride + row * p.c_leading + column;
    const float x = load_element(p.a, at, p.c_is_bf16);
    store_element(p.c, at, p.c_is_bf16, finished(p, x, at, column));
  }
}

// Numbers in [-1/2, 1/2), for timings.
extern "C" __global__ void __launch_bounds__(256)
    product_fill(void* to, int64_t elements, bool is_bf16) {
  for (int64_t i = thread_number(); i < elements; i += thread_count()) {
    uint32_t bits = static_cast<uint32_t>(i) * 2654435761u;  // Knuth's multiplicative hash.
    bits = (bits ^ bits >> 15) * 2246822519u;
    store_element(to, i, is_bf16, static_cast<float>(bits >> 8) * 0x1p-24f - 0.5f);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    pack_2_bytes(const __grid_constant__ PackParameters p) {
  pack<uint16_t>(p);
}
extern "C" __global__ void __launch_bounds__(256)
    pack_4_bytes(const __grid_constant__ PackParameters p) {
  pack<uint32_t>(p);
}

}  // namespace tessera::cuda
