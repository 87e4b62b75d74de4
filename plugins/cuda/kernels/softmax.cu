// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient, dx = y·(dy - Σ y·dy). A row that fits in the registers of its threads
// is read once: 4 bytes an element in bf16, 6 for the gradient. Exponentials are computed twice
// instead of being kept.
#include "plugins/cuda/kernels/rows.cuh"
#include "plugins/cuda/kernels/softmax.h"

namespace tessera::cuda {
namespace {

template <typename T, int kElements>
__device__ void softmax(const SoftmaxParameters& p) {
  const Place at = place_of(p.rows, blockIdx.x, kElements);
  const HeldRow<T, kElements, kHeldPacks> x(static_cast<const T*>(p.x) + at.row * p.rows.width, at);
  T* const y = static_cast<T*>(p.y) + at.row * p.rows.width;
  float maximum = -INFINITY, sum = 0.0f;
  for_packs<kHeldPacks>(at, [&](int64_t column, int slot) {
    float value[kElements];
    x.get(column, slot, value);
#pragma unroll
    for (int i = 0; i < kElements; ++i) maximum = fmaxf(maximum, value[i]);
  });
  maximum = maximum_of_lanes(maximum, at.lanes);
  for_packs<kHeldPacks>(at, [&](int64_t column, int slot) {
    float value[kElements];
    x.get(column, slot, value);
#pragma unroll
    for (int i = 0; i < kElements; ++i) sum += falling_exp(value[i] - maximum);
  });
  const float share = 1.0f / sum_of_lanes(sum, at.lanes);
  for_packs<kHeldPacks>(at, [&](int64_t column, int slot) {
    float value[kElements];
    x.get(column, slot, value);
#pragma unroll
    for (int i = 0; i < kElements; ++i) value[i] = falling_exp(value[i] - maximum) * share;
    store_vector(y + column, value);
  });
}

template <typename T, int kElements>
__device__ void softmax_grad(const SoftmaxParameters& p) {
  using Row = HeldRow<T, kElements, kHeldPacks>;
  const Place at = place_of(p.rows, blockIdx.x, kElements);
  const int64_t row = at.row * p.rows.width;
  const Row y(static_cast<const T*>(p.x) + row, at);
  const Row cotangent(static_cast<const T*>(p.cotangent) + row, at);
  T* const dx = static_cast<T*>(p.y) + row;
  float along = 0.0f;
  for_packs<kHeldPacks>(at, [&](int64_t column, int slot) {
    float share[kElements], dy[kElements];
    y.get(column, slot, share);
    cotangent.get(column, slot, dy);
#pragma unroll
    for (int i = 0; i < kElements; ++i) along = fmaf(share[i], dy[i], along);
  });
  along = sum_of_lanes(along, at.lanes);
  for_packs<kHeldPacks>(at, [&](int64_t column, int slot) {
    float share[kElements], dy[kElements];
    y.get(column, slot, share);
    cotangent.get(column, slot, dy);
#pragma unroll
    for (int i = 0; i < kElements; ++i) dy[i] = share[i] * (dy[i] - along);
    store_vector(dx + column, dy);
  });
}

}  // namespace

#define TESSERA_SOFTMAX(name, body, type, elements)                                              \
  extern "C" __global__ void __launch_bounds__(kRowThreads, 4) name(const SoftmaxParameters p) { \
    body<type, elements>(p);                                                                     \
  }
TESSERA_SOFTMAX(softmax_f32, softmax, float, 4)
TESSERA_SOFTMAX(softmax_f32_unaligned, softmax, float, 1)
TESSERA_SOFTMAX(softmax_bf16, softmax, bf16, 8)
TESSERA_SOFTMAX(softmax_bf16_unaligned, softmax, bf16, 1)
TESSERA_SOFTMAX(softmax_grad_f32, softmax_grad, float, 4)
TESSERA_SOFTMAX(softmax_grad_f32_unaligned, softmax_grad, float, 1)
TESSERA_SOFTMAX(softmax_grad_bf16, softmax_grad, bf16, 8)
TESSERA_SOFTMAX(softmax_grad_bf16_unaligned, softmax_grad, bf16, 1)
#undef TESSERA_SOFTMAX

}  // namespace tessera::cuda
