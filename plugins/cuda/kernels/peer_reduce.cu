// SPDX-License-Identifier: Apache-2.0
// Reads each element of each GPU of the group once, writes the result once.
#include "plugins/cuda/kernels/peer_reduce.h"
#include "plugins/cuda/kernels/strided.cuh"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

// bf16 is summed in f32 and rounded once.
template <typename T>
struct HeldAs {
  using Type = T;
};
template <>
struct HeldAs<bf16> {
  using Type = float;
};
template <typename T>
using Held = typename HeldAs<T>::Type;

struct Sum {
  template <typename T>
  __device__ static T of(T a, T b) {
    return a + b;
  }
};

struct Maximum {
  template <typename T>
  __device__ static T of(T a, T b) {
    return a != a ? a : (a < b || b != b ? b : a);  // NaN stays NaN.
  }
};

template <typename T, int width>
__device__ void load(const T* from, Held<T> (&to)[width]) {
  T elements[width];
  if constexpr (width == 1) {
    elements[0] = *from;
  } else {
    const uint4 bytes = *reinterpret_cast<const uint4*>(from);
    memcpy(elements, &bytes, sizeof(bytes));
  }
#pragma unroll
  for (int k = 0; k < width; ++k) to[k] = static_cast<Held<T>>(elements[k]);
}

template <typename T, int width>
__device__ void store(T* to, const Held<T> (&from)[width]) {
  T elements[width];
#pragma unroll
  for (int k = 0; k < width; ++k) elements[k] = static_cast<T>(from[k]);
  if constexpr (width == 1) {
    *to = elements[0];
  } else {
    uint4 bytes;
    memcpy(&bytes, elements, sizeof(bytes));
    *reinterpret_cast<uint4*>(to) = bytes;
  }
}

template <typename Op, typename T, int width>
__device__ void combine(const T (&left)[width], T (&right)[width]) {
#pragma unroll
  for (int k = 0; k < width; ++k) right[k] = Op::of(left[k], right[k]);
}

// A binary tree over the GPUs whose left part is the largest power of two, as on the CPU, so that
// results have the same bits. After n GPUs, the bits of n are the levels that hold a subtree: level
// l one of 2^l GPUs. The branches are the same for all threads.
template <typename Op, typename T, int width>
__device__ void reduce_access(const PeerReduce& p, int64_t offset, Held<T> (&result)[width]) {
  constexpr int kLevels = 6;
  static_assert(kMostPeers < 1 << kLevels);
  Held<T> levels[kLevels][width];
#pragma unroll 1
  for (int peer = 0; peer < p.peers; ++peer) {
    load<T>(static_cast<const T*>(p.from[peer]) + offset, result);
    bool carries = true;
#pragma unroll
    for (int l = 0; l < kLevels; ++l) {
      if (!carries) continue;
      carries = peer >> l & 1;
      if (carries) {
        combine<Op>(levels[l], result);
      } else {
#pragma unroll
        for (int k = 0; k < width; ++k) levels[l][k] = result[k];
      }
    }
  }
  bool found = false;
#pragma unroll
  for (int l = 0; l < kLevels; ++l) {
    if (!(p.peers >> l & 1)) continue;
    if (found) {
      combine<Op>(levels[l], result);
    } else {
#pragma unroll
      for (int k = 0; k < width; ++k) result[k] = levels[l][k];
    }
    found = true;
  }
}

template <typename Op, typename T, int width>
__device__ void reduce(const PeerReduce& p) {
  for (int64_t i = thread_number(); i < p.accesses; i += thread_count()) {
    const Division at = divide(i, p.columns);
    const auto row = static_cast<int64_t>(at.quotient);
    const int64_t offset = row * p.pitch + static_cast<int64_t>(at.remainder);
    Held<T> result[width];
    reduce_access<Op, T>(p, offset * width, result);
    store<T>(static_cast<T*>(p.to) + i * width, result);
  }
}

template <typename Op, typename T>
__device__ void reduce(const PeerReduce& p) {
  if (p.wide) {
    reduce<Op, T, kVector<T>>(p);
  } else {
    reduce<Op, T, 1>(p);
  }
}

}  // namespace

#define TESSERA_PEER_REDUCE(dtype, T)                                                      \
  extern "C" __global__ void __launch_bounds__(256) peer_sum_##dtype(const PeerReduce p) { \
    reduce<Sum, T>(p);                                                                     \
  }                                                                                        \
  extern "C" __global__ void __launch_bounds__(256) peer_max_##dtype(const PeerReduce p) { \
    reduce<Maximum, T>(p);                                                                 \
  }
TESSERA_PEER_REDUCE(f32, float)
TESSERA_PEER_REDUCE(bf16, bf16)
TESSERA_PEER_REDUCE(f64, double)
TESSERA_PEER_REDUCE(i32, int32_t)
TESSERA_PEER_REDUCE(u32, uint32_t)

}  // namespace tessera::cuda
