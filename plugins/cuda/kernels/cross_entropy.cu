// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and its gradient, of a whole vocabulary or of a shard of it. The logits are read
// once, 2 bytes each in bf16, and the gradient writes as many; probabilities are never stored. The
// forward pass uses the online softmax of Milakov and Gimelshein (2018): each thread keeps the
// maximum and the sum of exponentials of its part of a row, which is rescaled when the maximum
// grows; the parts are combined at the end.
#include "plugins/cuda/kernels/cross_entropy.h"
#include "plugins/cuda/kernels/rows.cuh"

namespace tessera::cuda {
namespace {

template <int kCount>
__device__ void apply_cap(const LogitRows& rows, float (&z)[kCount]) {
  if (rows.soft_cap <= 0.0f) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) z[i] = rows.soft_cap * tanhf(rows.inverse_cap * z[i]);
}

// Calls f(column, values) with the values of this thread in arrays of 1 or kVector<T>. Rows of an
// odd vocabulary begin at any address: packs begin at the first multiple of 16 bytes, and what is
// before and behind them is read one by one. `packs`: false reads all one by one.
template <typename T, typename F>
__device__ void for_logits(const T* logits, const Place& at, bool packs, F f) {
  constexpr int kPack = kVector<T>;
  const auto misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(logits) % 16 / sizeof(T));
  const int64_t head = packs ? min(int64_t{(kPack - misaligned) % kPack}, at.width) : at.width;
  const int64_t count = (at.width - head) / kPack;
  const int64_t singles = at.width - count * kPack;
#pragma unroll 1
  for (int64_t i = at.first; i < singles; i += at.step) {
    const int64_t column = i < head ? i : i + count * kPack;
    float value[1] = {to_float(logits[column])};
    f(column, value);
  }
#pragma unroll 1
  for (int64_t first = at.first; first < count; first += kHeldPacks * at.step) {
    Pack<T, kPack> held[kHeldPacks] =
        {};  // All loads are in flight before the first value is used.
#pragma unroll
    for (int slot = 0; slot < kHeldPacks; ++slot)
      if (first + slot * at.step < count)
        held[slot].load(logits + head + (first + slot * at.step) * kPack);
#pragma unroll
    for (int slot = 0; slot < kHeldPacks; ++slot) {
      if (first + slot * at.step >= count) continue;
      float value[kPack];
      held[slot].widen(value);
      f(head + (first + slot * at.step) * kPack, value);
    }
  }
}

// The term of z = -infinity is 0, also where that is the maximum, and -inf - -inf not a number.
__device__ float finite_center(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

// The maximum of a row, the sum of exp(z - maximum), and the sum of z.
struct RowSummary {
  float maximum, sum, total;
};

template <typename T>
__device__ RowSummary summary_of(const LogitRows& rows, const T* logits, const Place& at) {
  float maximum = -INFINITY, sum = 0.0f, total = 0.0f;
  for_logits(logits, at, true, [&]<int kCount>(int64_t, float(&z)[kCount]) {
    apply_cap(rows, z);
    float largest = z[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) largest = fmaxf(largest, z[i]);
    if (largest > maximum) {
      sum *= falling_exp(maximum - largest);
      maximum = largest;
    }
    const float center = finite_center(maximum);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sum += falling_exp(z[i] - center);
      total += z[i];
    }
  });
  const float largest = maximum_of_lanes(maximum, at.lanes);
  float sums[2] = {maximum == largest ? sum : sum * falling_exp(maximum - largest), total};
  sum_lanes(sums, at.lanes);
  return {largest, sums[0], sums[1]};
}

template <typename T>
__device__ void cross_entropy(const CrossEntropyParameters& p) {
  const Place at = place_of(p.z.rows, blockIdx.x, 1);
  const T* const logits = static_cast<const T*>(p.z.logits) + at.row * p.z.rows.width;
  const RowSummary row = summary_of(p.z, logits, at);
  if (!at.leads()) return;
  const int64_t label = p.z.labels[at.row];
  float picked[1] = {0.0f};
  if (label >= 0 && label < at.width) {
    picked[0] = to_float(logits[label]);
    apply_cap(p.z, picked);
  }
  // The difference of the large terms first: it is exact where the label is the maximum.
  const float log_sum = logf(row.sum), lse = row.maximum + log_sum;
  float loss = log_sum + (row.maximum - picked[0]);
  p.log_likelihood[at.row] = -loss;
  if (p.smoothing > 0.0f)
    loss += p.smoothing * (picked[0] - row.total / static_cast<float>(at.width));
  if (p.z_loss > 0.0f) loss = fmaf(p.z_loss * lse, lse, loss);
  p.loss[at.row] = loss;
  p.correct[at.row] = picked[0] == row.maximum ? 1.0f : 0.0f;
  p.lse[at.row] = lse;
}

// The gradient of a row: (rise·exp(z - center) + level + [label] inside)·cap' + [label] outside.
struct GradRow {
  float center, rise, level, inside, outside;
  int64_t label;
};

template <typename T>
__device__ void write_gradient(const LogitRows& rows, const Place& at, const GradRow& row,
                               void* dlogits, bool same_offset) {
  const int64_t begin = at.row * rows.rows.width;
  T* const to = static_cast<T*>(dlogits) + begin;
  for_logits(static_cast<const T*>(rows.logits) + begin, at, same_offset,
             [&]<int kCount>(int64_t column, float(&z)[kCount]) {
               apply_cap(rows, z);
               float slope[kCount];
#pragma unroll
               for (int i = 0; i < kCount; ++i)
                 slope[i] = fmaf(falling_exp(z[i] - row.center), row.rise, row.level);
               const bool here = row.label >= column && row.label < column + kCount;
               const auto add_at_label = [&](float term) {
#pragma unroll
                 for (int i = 0; i < kCount; ++i)
                   if (column + i == row.label) slope[i] += term;
               };
               if (here) add_at_label(row.inside);
               if (rows.soft_cap > 0.0f) {
#pragma unroll
                 for (int i = 0; i < kCount; ++i) {
                   const float part = z[i] * rows.inverse_cap;
                   slope[i] *= fmaf(-part, part, 1.0f);
                 }
               }
               if (here) add_at_label(row.outside);
               store_vector(to + column, slope);
             });
}

// d loss/d z = cotangent·((1 + 2·z_loss·lse)·p - smoothing/vocab - (1 - smoothing)·[label]).
template <typename T>
__device__ void cross_entropy_grad(const CrossEntropyGradParameters& p) {
  const Place at = place_of(p.z.rows, blockIdx.x, 1);
  if (at.width == 0) return;
  const float cotangent = p.cotangent[at.row], lse = p.lse[at.row];
  const GradRow row{.center = lse,
                    .rise = cotangent * fmaf(2.0f * p.z_loss, lse, 1.0f),
                    .level = -cotangent * p.smoothing / static_cast<float>(at.width),
                    .inside = -cotangent * (1.0f - p.smoothing),
                    .outside = 0.0f,
                    .label = p.z.labels[at.row]};
  write_gradient<T>(p.z, at, row, p.dlogits, p.same_offset);
}

template <typename T>
__device__ void cross_entropy_shard(const CrossEntropyShardParameters& p) {
  const Place at = place_of(p.z.rows, blockIdx.x, 1);
  const T* const logits = static_cast<const T*>(p.z.logits) + at.row * p.z.rows.width;
  const float center = finite_center(at.width > 0 ? p.maximum[at.row] : 0.0f);
  float sums[2] = {0.0f, 0.0f};  // Sums of exp(z - maximum) and of z.
  for_logits(logits, at, true, [&]<int kCount>(int64_t, float(&z)[kCount]) {
    apply_cap(p.z, z);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sums[0] += falling_exp(z[i] - center);
      sums[1] += z[i];
    }
  });
  sum_lanes(sums, at.lanes);
  if (!at.leads()) return;
  const int64_t label = p.z.labels[at.row] - p.origin;
  p.sum[at.row] = sums[0];
  p.picked[at.row] = label >= 0 && label < at.width ? to_float(logits[label]) : 0.0f;
  if (p.total != nullptr) p.total[at.row] = sums[1];
}

template <typename T>
__device__ void cross_entropy_shard_grad(const CrossEntropyShardGradParameters& p) {
  const Place at = place_of(p.z.rows, blockIdx.x, 1);
  if (at.width == 0) return;
  const GradRow row{.center = p.maximum[at.row],
                    .rise = p.sum[at.row],
                    .level = p.total != nullptr ? p.total[at.row] : 0.0f,
                    .inside = 0.0f,
                    .outside = p.picked[at.row],
                    .label = p.z.labels[at.row] - p.origin};
  write_gradient<T>(p.z, at, row, p.dlogits, p.same_offset);
}

}  // namespace

#define TESSERA_CROSS_ENTROPY(name, Parameters)                                                  \
  extern "C" __global__ void __launch_bounds__(kRowThreads, 4) name##_f32(const Parameters p) {  \
    name<float>(p);                                                                              \
  }                                                                                              \
  extern "C" __global__ void __launch_bounds__(kRowThreads, 4) name##_bf16(const Parameters p) { \
    name<bf16>(p);                                                                               \
  }
TESSERA_CROSS_ENTROPY(cross_entropy, CrossEntropyParameters)
TESSERA_CROSS_ENTROPY(cross_entropy_grad, CrossEntropyGradParameters)
TESSERA_CROSS_ENTROPY(cross_entropy_shard, CrossEntropyShardParameters)
TESSERA_CROSS_ENTROPY(cross_entropy_shard_grad, CrossEntropyShardGradParameters)
#undef TESSERA_CROSS_ENTROPY

}  // namespace tessera::cuda
