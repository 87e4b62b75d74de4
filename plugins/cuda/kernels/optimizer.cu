// SPDX-License-Identifier: Apache-2.0
// adam_update (Kingma and Ba, 2015, with decoupled weight decay) of many parameters in one launch:
// one pass over parameter, moments and gradient, 28 bytes an element, 4 less for each moment in
// bf16, and 2 for a copy of the parameter in bf16. May run in place.
#include "plugins/cuda/kernels/noise.cuh"
#include "plugins/cuda/kernels/optimizer.h"
#include "plugins/cuda/kernels/tensor_table.cuh"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

// What all elements share.
struct Rates {
  float decay1, weight1, decay2, weight2, unbias1, unbias2;
  float learning_rate, gradient_scale;
  bool apply;
};

// In double, because 1 - β^count of the first steps loses most digits in f32.
__device__ double power(double log2_base, double exponent) {
  return exponent == 0.0 ? 1.0 : exp2(exponent * log2_base);
}

__device__ Rates rates_of(const AdamSettings& p) {
  const double count = *p.count;
  double decay1 = p.beta1, decay2 = p.beta2;
  const double correction1 = 1.0 - power(p.log2_beta1, count + 1.0);
  const double correction2 = 1.0 - power(p.log2_beta2, count + 1.0);
  Rates rates{.unbias1 = 1.0f,
              .unbias2 = 1.0f,
              .learning_rate = *p.learning_rate,
              .gradient_scale = *p.gradient_scale,
              .apply = *p.apply != 0};
  if (p.corrected) {
    decay1 *= (1.0 - power(p.log2_beta1, count)) / correction1;
    decay2 *= (1.0 - power(p.log2_beta2, count)) / correction2;
  } else {
    rates.unbias1 = static_cast<float>(1.0 / correction1);
    rates.unbias2 = static_cast<float>(1.0 / correction2);
  }
  rates.decay1 = static_cast<float>(decay1), rates.weight1 = static_cast<float>(1.0 - decay1);
  rates.decay2 = static_cast<float>(decay2), rates.weight2 = static_cast<float>(1.0 - decay2);
  return rates;
}

struct Element {
  float parameter, first, second;
};

__device__ Element updated(const AdamSettings& p, const Rates& rates, float weight_decay,
                           Element old, float gradient) {
  const float first = fmaf(old.first, rates.decay1, gradient * rates.weight1);
  const float second = fmaf(old.second, rates.decay2, gradient * gradient * rates.weight2);
  const float deviation = sqrtf(fmaf(second, rates.unbias2, p.epsilon_root));
  const float direction = first * rates.unbias1 / (deviation + p.epsilon);
  const float update = fmaf(old.parameter, weight_decay, direction);
  return {fmaf(-update, rates.learning_rate, old.parameter), first, second};
}

template <typename T, int width>
__device__ void load_moment(const void* from, int64_t at, float (&to)[width]) {
  load_vector(static_cast<const T*>(from) + at, to);
}
template <typename T, int width>
__device__ void store_moment(void* to, int64_t at, const float (&from)[width]) {
  store_vector(static_cast<T*>(to) + at, from);
}

// Moments in f32 are not rounded.
template <typename First, typename Second, int width>
__device__ void round_moments(const AdamTensor&, const AdamSettings&, int64_t, float (&)[width],
                              float (&)[width]) {}
// The low half of a word is the noise of the first moment, the high half that of the second. What
// is not rounded stochastically is rounded to nearest when it is stored.
template <typename First, typename Second, int width>
__device__ void round_moments(const RoundedAdamTensor& t, const AdamSettings& p, int64_t at,
                              float (&first)[width], float (&second)[width]) {
  if (!t.stochastic) return;
  uint32_t words[width];
  draw_noise(t.noise, *p.count, at, words);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    if constexpr (sizeof(First) == 2) first[i] = rounded_to_bf16(first[i], words[i]);
    if constexpr (sizeof(Second) == 2) second[i] = rounded_to_bf16(second[i], words[i] >> 16);
  }
}

// Elements `at` to at + width - 1.
template <typename First, typename Second, int width, typename Entry>
__device__ void update(const AdamSettings& p, const Entry& t, const Rates& rates, int64_t at) {
  float w[width], m[width], s[width], g[width];
  load_vector(t.parameter + at, w);
  load_moment<First>(t.first, at, m);
  load_moment<Second>(t.second, at, s);
  load_vector(t.gradient + at, g);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const Element next =
        updated(p, rates, t.weight_decay, {w[i], m[i], s[i]}, g[i] * rates.gradient_scale);
    if (rates.apply) w[i] = next.parameter, m[i] = next.first, s[i] = next.second;
  }
  store_vector(t.next_parameter + at, w);
  round_moments<First, Second>(t, p, at, m, s);
  store_moment<First>(t.next_first, at, m);
  store_moment<Second>(t.next_second, at, s);
  if (t.copy != nullptr) store_vector(static_cast<bf16*>(t.copy) + at, w);
}

template <typename First, typename Second, typename Parameters>
__device__ void update_block(const Parameters& p) {
  __shared__ Rates shared_rates;
  if (threadIdx.x == 0) shared_rates = rates_of(p.settings);
  __syncthreads();
  const Rates rates = shared_rates;
  const uint32_t block = p.table.blocks_before + blockIdx.x;
  const auto& t = tensor_of(p.table, block);
  const auto [begin, end] = range_of(p.table, t, block);
  const int64_t vectors_end = t.aligned ? end / 4 * 4 : begin;
  for (int64_t i = begin + 4 * threadIdx.x; i < vectors_end; i += 4 * blockDim.x)
    update<First, Second, 4>(p.settings, t, rates, i);
  for (int64_t i = vectors_end + threadIdx.x; i < end; i += blockDim.x)
    update<First, Second, 1>(p.settings, t, rates, i);
}

}  // namespace

// Named by the dtypes of the moments where one is bf16.
extern "C" __global__ void __launch_bounds__(256)
    adam_update(const __grid_constant__ AdamParameters p) {
  update_block<float, float>(p);
}
extern "C" __global__ void __launch_bounds__(256)
    adam_update_bf16_f32(const __grid_constant__ RoundedAdamParameters p) {
  update_block<bf16, float>(p);
}
extern "C" __global__ void __launch_bounds__(256)
    adam_update_f32_bf16(const __grid_constant__ RoundedAdamParameters p) {
  update_block<float, bf16>(p);
}
extern "C" __global__ void __launch_bounds__(256)
    adam_update_bf16_bf16(const __grid_constant__ RoundedAdamParameters p) {
  update_block<bf16, bf16>(p);
}

}  // namespace tessera::cuda
