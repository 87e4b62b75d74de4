// SPDX-License-Identifier: Apache-2.0
// adam_update (Kingma and Ba, 2015, with decoupled weight decay): one pass over parameter, moments
// and gradient, 28 bytes an element. May run in place.
#include "plugins/cuda/kernels/optimizer.h"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

struct Rates {
  float decay1, weight1, decay2, weight2, unbias1, unbias2;
};

// In double, because 1 - β^count of the first steps loses most digits in f32.
__device__ double power(double log2_base, double exponent) {
  return exponent == 0.0 ? 1.0 : exp2(exponent * log2_base);
}

__device__ Rates rates_of(const AdamParameters& p) {
  const double count = *p.count;
  double decay1 = p.beta1, decay2 = p.beta2;
  const double correction1 = 1.0 - power(p.log2_beta1, count + 1.0);
  const double correction2 = 1.0 - power(p.log2_beta2, count + 1.0);
  Rates rates{.unbias1 = 1.0f, .unbias2 = 1.0f};
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

__device__ Element updated(const AdamParameters& p, const Rates& rates, float learning_rate,
                           Element old, float gradient) {
  const float first = fmaf(old.first, rates.decay1, gradient * rates.weight1);
  const float second = fmaf(old.second, rates.decay2, gradient * gradient * rates.weight2);
  const float deviation = sqrtf(fmaf(second, rates.unbias2, p.epsilon_root));
  const float direction = first * rates.unbias1 / (deviation + p.epsilon);
  const float update = fmaf(old.parameter, p.weight_decay, direction);
  return {fmaf(-update, learning_rate, old.parameter), first, second};
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256) adam_update(const AdamParameters p) {
  __shared__ Rates shared_rates;
  if (threadIdx.x == 0) shared_rates = rates_of(p);
  __syncthreads();
  const Rates rates = shared_rates;
  const float scale = *p.gradient_scale;
  const float learning_rate = *p.learning_rate;
  const bool apply = *p.apply != 0;
  for (int64_t v = thread_number(); v < p.vectors; v += thread_count()) {
    float w[4], m[4], s[4], g[4];
    load_vector(p.parameter + 4 * v, w);
    load_vector(p.first + 4 * v, m);
    load_vector(p.second + 4 * v, s);
    load_vector(p.gradient + 4 * v, g);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Element next = updated(p, rates, learning_rate, {w[i], m[i], s[i]}, g[i] * scale);
      if (apply) w[i] = next.parameter, m[i] = next.first, s[i] = next.second;
    }
    store_vector(p.next_parameter + 4 * v, w);
    store_vector(p.next_first + 4 * v, m);
    store_vector(p.next_second + 4 * v, s);
  }
  for (int64_t i = 4 * p.vectors + thread_number(); i < p.elements; i += thread_count()) {
    const Element old{p.parameter[i], p.first[i], p.second[i]};
    const Element next = updated(p, rates, learning_rate, old, p.gradient[i] * scale);
    p.next_parameter[i] = apply ? next.parameter : old.parameter;
    p.next_first[i] = apply ? next.first : old.first;
    p.next_second[i] = apply ? next.second : old.second;
  }
}

}  // namespace tessera::cuda
