// SPDX-License-Identifier: Apache-2.0
// The reference product: batches of A·B of any size, stride and alignment. A block computes one
// tile of C (product_tile.cuh, product_result.cuh).
#include "plugins/cuda/gemm/product_result.cuh"

namespace tessera::cuda {
namespace {

template <typename Method>
__device__ void products(const ProductParameters& p) {
  using T = typename Method::Element;
  __shared__ Shared<Method> shared;
  for (int64_t batch = blockIdx.z; batch < p.batches; batch += gridDim.z) {
    const Matrix<T> a = matrix_of<T>(p.a, batch * p.a_stride, p.a_leading, p.m, p.k,
                                     !Method::kTransposedA, p.a_aligned);
    const Matrix<T> b = matrix_of<T>(p.b, batch * p.b_stride, p.b_leading, p.n, p.k,
                                     Method::kTransposedB, p.b_aligned);
    product_tile<Method>(p, batch, a, b, shared, [](auto&) {});
  }
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

// Numbers for timings: f32 and bf16 in [-1/2, 1/2), and codes of 8-bit floats, of either sign and
// 16 magnitudes.
extern "C" __global__ void __launch_bounds__(256)
    product_fill(void* to, int64_t elements, int element_bytes) {
  for (int64_t i = thread_number(); i < elements; i += thread_count()) {
    uint32_t bits = static_cast<uint32_t>(i) * 2654435761u;  // Knuth's multiplicative hash.
    bits = (bits ^ bits >> 15) * 2246822519u;
    if (element_bytes == 1)
      static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>((bits >> 24 & 0x8f) + 0x28);
    else
      store_element(to, i, element_bytes == 2, static_cast<float>(bits >> 8) * 0x1p-24f - 0.5f);
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
