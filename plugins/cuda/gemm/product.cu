// SPDX-License-Identifier: Apache-2.0
// The reference product: batches of A·B of any size, stride and alignment. A block computes one
// tile of C (product_tile.cuh).
#include "plugins/cuda/gemm/product_parameters.h"
#include "plugins/cuda/gemm/product_tile.cuh"

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

// Stores rows of a tile of C whose sums lie in shared memory, lines of kSize + kStagePad floats.
// Staged row r is row row_of(r) of C.
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

// -- Products -----------------------------------------------------------------------------------

// One tile of one product of the batch.
template <typename Method>
__device__ void product_tile(const ProductParameters& p, int64_t batch, Shared<Method>& shared) {
  using T = typename Method::Element;
  constexpr int kSize = Method::kSize;
  const int tiles = (p.n + kSize - 1) / kSize;
  const int row = static_cast<int>(blockIdx.x) / tiles * kSize;
  const int column = static_cast<int>(blockIdx.x) % tiles * kSize;
  const Matrix<T> a = matrix_of<T>(p.a, batch * p.a_stride, p.a_leading, p.m, p.k,
                                   !Method::kTransposedA, p.a_aligned);
  const Matrix<T> b = matrix_of<T>(p.b, batch * p.b_stride, p.b_leading, p.n, p.k,
                                   Method::kTransposedB, p.b_aligned);
  typename Method::Sums sums = {};
  sum_tile<Method>(a, b, row, column, p.k, shared, sums);
  store_tile<Method>(sums, shared.staged, [&](const auto& row_of) {
    store_rows<Method::kThreads, Method::kSize>(p, batch * p.c_stride, column, Method::kStagedRows,
                                                shared.staged,
                                                [&](int r) { return row + row_of(r); });
  });
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
