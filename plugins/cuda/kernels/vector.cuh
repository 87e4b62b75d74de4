// SPDX-License-Identifier: Apache-2.0
// Loads and stores of 16 bytes, and conversions between bf16 and f32. Kernels compute in f32.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace tessera::cuda {

using bf16 = __nv_bfloat16;

// Elements in 16 bytes.
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

// In assembly, because the compiler splits a store of a uint4 into 4 of 4 bytes where it thinks
// fit.
__device__ inline void store_16_bytes(void* to, const uint32_t* words) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// kElements adjacent elements in their narrow form, moved by as few instructions as their bytes
// allow; the address must be a multiple of the bytes, up to 16.
template <typename T, int kElements>
class Pack {
 public:
  __device__ void load(const T* from) {
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) {
        const uint4 four = reinterpret_cast<const uint4*>(from)[i / 4];
        words_[i] = four.x, words_[i + 1] = four.y, words_[i + 2] = four.z, words_[i + 3] = four.w;
      }
    } else if constexpr (kBytes == 8) {
      const uint2 two = *reinterpret_cast<const uint2*>(from);
      words_[0] = two.x, words_[1] = two.y;
    } else if constexpr (kBytes == 4) {
      words_[0] = *reinterpret_cast<const uint32_t*>(from);
    } else {
      words_[0] = *reinterpret_cast<const uint16_t*>(from);
    }
  }
  __device__ void store(T* to) const {  // To global memory.
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) store_16_bytes(to + i * 4 / sizeof(T), words_ + i);
    } else if constexpr (kBytes == 8) {
      *reinterpret_cast<uint2*>(to) = make_uint2(words_[0], words_[1]);
    } else if constexpr (kBytes == 4) {
      *reinterpret_cast<uint32_t*>(to) = words_[0];
    } else {
      *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(words_[0]);
    }
  }

  __device__ void widen(float (&to)[kElements]) const {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      if constexpr (sizeof(T) == 4) {
        to[i] = __uint_as_float(words_[i]);
      } else {  // The first of two bf16 is in the low half.
        to[i] = __uint_as_float(i % 2 == 0 ? words_[i / 2] << 16 : words_[i / 2] & 0xffff0000u);
      }
    }
  }
  __device__ void narrow(const float (&from)[kElements]) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) words_[i] = __float_as_uint(from[i]);
    } else if constexpr (kElements == 1) {
      words_[0] = __bfloat16_as_ushort(__float2bfloat16_rn(from[0]));
    } else {
#pragma unroll
      for (int i = 0; i < kElements; i += 2)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words_[i / 2]) : "f"(from[i + 1]), "f"(from[i]));
    }
  }

 private:
  static constexpr int kBytes = sizeof(T) * kElements;
  static constexpr int kWords = (kBytes + 3) / 4;
  static_assert(kBytes % 16 == 0 || kBytes == 8 || kBytes == 4 || kBytes == 2);
  uint32_t words_[kWords];
};

template <typename T, int kElements>
__device__ inline void load_vector(const T* from, float (&to)[kElements]) {
  Pack<T, kElements> pack;
  pack.load(from);
  pack.widen(to);
}
// To global memory.
template <typename T, int kElements>
__device__ inline void store_vector(T* to, const float (&from)[kElements]) {
  Pack<T, kElements> pack;
  pack.narrow(from);
  pack.store(to);
}

__device__ inline int64_t thread_number() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t thread_count() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

}  // namespace tessera::cuda
