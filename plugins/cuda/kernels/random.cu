// SPDX-License-Identifier: Apache-2.0
// random_uniform and dropout, bit for bit as on the CPU: element i of a stream is word i % 4 of the
// Philox-4x32-10 block at counter i / 4 (core/base/random.h). 4 bytes an element, and 4 or 8 for
// dropout; about 20 instructions an element for the rounds.
//
// A thread makes as many neighbours as have 16 bytes. Where these are no neighbours in the global
// array, the functions "…_scattered" make one element a thread.
#include "core/base/random.h"
#include "plugins/cuda/kernels/philox.cuh"
#include "plugins/cuda/kernels/random.h"
#include "plugins/cuda/kernels/strided.cuh"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

__device__ RandomStream stream_of(const RandomParameters& p) {
  const int64_t layer = p.loop_index != nullptr ? *p.loop_index : p.layer;
  return {layer_key(p.path_hash, layer), static_cast<uint64_t>(int64_t{*p.step})};
}

__device__ int64_t first_element(const RandomParameters& p) {
  if (p.first_example == nullptr) return p.first;
  return p.first + *p.first_example * p.example_elements;
}

// Uniform values of elements begin, begin + 1, … of the stream.
template <int kCount>
__device__ void draw(const RandomStream& stream, uint64_t begin, float (&values)[kCount]) {
  constexpr int kBlocks = (kCount + 3) / 4;
  const uint64_t counter = begin / 4;
  const int skipped = static_cast<int>(begin % 4);
  uint32_t words[4 * kBlocks + 4] = {};
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
    draw_block(stream, counter + block, words + 4 * block);
  if (kCount > 1 && skipped != 0) draw_block(stream, counter + kBlocks, words + 4 * kBlocks);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint32_t even = skipped < 2 ? words[i] : words[i + 2];
    const uint32_t odd = skipped < 2 ? words[i + 1] : words[i + 3];
    values[i] = uniform_from_bits(skipped % 2 == 0 ? even : odd);
  }
}

// Calls use(element, count, values) for the elements of this thread, `kCount` at a time.
template <int kCount, typename Use>
__device__ void for_items(const RandomParameters& p, const Use& use) {
  const int64_t items = (p.elements + kCount - 1) / kCount;
  if (thread_number() >= items) return;
  const RandomStream stream = stream_of(p);
  const int64_t first = first_element(p);
  for (int64_t item = thread_number(); item < items; item += thread_count()) {
    const int64_t element = item * kCount, rest = p.elements - element;
    float values[kCount];
    draw(stream, static_cast<uint64_t>(first + offset_in(p.space, element)), values);
    use(element, rest < kCount ? static_cast<int>(rest) : kCount, values);
  }
}

template <typename T, int kCount>
__device__ bool is_vector(const T* address, int count) {
  return kCount == kVector<T> && count == kCount && reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

template <typename T, int kCount>
__device__ void load_some(const T* from, int count, float (&to)[kCount]) {
  if constexpr (kCount == kVector<T>)
    if (is_vector<T, kCount>(from, count)) return load_vector(from, to);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = i < count ? to_float(from[i]) : 0.0f;
}

template <typename T, int kCount>
__device__ void store_some(T* to, int count, const float (&from)[kCount]) {
  if constexpr (kCount == kVector<T>)
    if (is_vector<T, kCount>(to, count)) return store_vector(to, from);
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i < count) to[i] = from_float<T>(from[i]);
}

template <int kCount>
__device__ void uniform(const UniformParameters& p) {
  for_items<kCount>(p.random, [&](int64_t element, int count, const float(&values)[kCount]) {
    store_some(p.y + element, count, values);
  });
}

template <typename T, int kCount>
__device__ void dropout(const DropoutParameters& p) {
  for_items<kCount>(p.random, [&](int64_t element, int count, const float(&values)[kCount]) {
    float x[kCount];
    load_some(static_cast<const T*>(p.x) + element, count, x);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = values[i] < p.keep ? __fmul_rn(x[i], p.factor) : 0.0f;
    store_some(static_cast<T*>(p.y) + element, count, x);
  });
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256) random_uniform_f32(const UniformParameters p) {
  uniform<kVector<float>>(p);
}
extern "C" __global__ void __launch_bounds__(256)
    random_uniform_scattered_f32(const UniformParameters p) {
  uniform<1>(p);
}
extern "C" __global__ void __launch_bounds__(256) dropout_f32(const DropoutParameters p) {
  dropout<float, kVector<float>>(p);
}
extern "C" __global__ void __launch_bounds__(256) dropout_bf16(const DropoutParameters p) {
  dropout<bf16, kVector<bf16>>(p);
}
extern "C" __global__ void __launch_bounds__(256) dropout_scattered_f32(const DropoutParameters p) {
  dropout<float, 1>(p);
}
extern "C" __global__ void __launch_bounds__(256)
    dropout_scattered_bf16(const DropoutParameters p) {
  dropout<bf16, 1>(p);
}

}  // namespace tessera::cuda
