// SPDX-License-Identifier: Apache-2.0
// Loads and stores of 16 bytes, and conversions between bf16 and f32. Kernels compute in f32.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

namespace tessera::cuda {

using bf16 = __nv_bfloat16;

// Through uint4, so that one instruction moves all 16 bytes: a struct of bf16 pairs is copied in
// pieces of 4.
template <typename T>
inline constexpr int kVector = 16 / sizeof(T);

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return __bfloat162float(x); }
template <typename T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 from_float<bf16>(float x) {
  return __float2bfloat16_rn(x);
}

// kVector<T> elements from an address that is a multiple of 16.
template <typename T>
__device__ inline void load_vector(const T* from, float (&to)[kVector<T>]) {
  const uint4 bytes = *reinterpret_cast<const uint4*>(from);
  const T* const elements = reinterpret_cast<const T*>(&bytes);
#pragma unroll
  for (int i = 0; i < kVector<T>; ++i) to[i] = to_float(elements[i]);
}
template <typename T>
__device__ inline void store_vector(T* to, const float (&from)[kVector<T>]) {
  uint4 bytes;
  T* const elements = reinterpret_cast<T*>(&bytes);
#pragma unroll
  for (int i = 0; i < kVector<T>; ++i) elements[i] = from_float<T>(from[i]);
  *reinterpret_cast<uint4*>(to) = bytes;
}

__device__ inline int64_t thread_number() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t thread_count() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

}  // namespace tessera::cuda
