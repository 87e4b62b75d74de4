// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/norm/cross_entropy_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/norm/cross_entropy_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kChunk = 1024;  // Logits worked on at a time, in first-level cache.

// The logits after capping, and the factor the cap puts on their gradient.
HWY_INLINE Vec capped(Vec logits, float cap) {
  if (cap <= 0.0f) return logits;
  return hn::Mul(tanh_of(hn::Mul(logits, splat(1.0f / cap))), splat(cap));
}
HWY_INLINE Vec through_cap(Vec slope, Vec z, float cap) {
  if (cap <= 0.0f) return slope;
  const Vec part = hn::Mul(z, splat(1.0f / cap));
  return hn::Mul(slope, hn::NegMulAdd(part, part, splat(1.0f)));
}

// What one pass over a row finds.
struct RowSummary {
  double sum = 0.0;    // Of exp(z - maximum).
  double total = 0.0;  // Of z.
  float maximum = -std::numeric_limits<float>::infinity();
  float picked = 0.0f;  // The label's z.
};

// The chunk's z into `z`, filled up to whole vectors with -inf; adds to total and maximum.
template <typename T>
HWY_INLINE float read_chunk(const T* logits, int64_t count, float cap, float* z, double& total) {
  const float lowest = -std::numeric_limits<float>::infinity();
  const auto capped_at = [&](int64_t i, int64_t left)
                             HWY_ATTR { return capped(load(logits + i, left), cap); };
  Vec maximum = splat(lowest);
  Vec sum = splat(0.0f);
  const int64_t whole = count / lanes() * lanes();
  for (int64_t i = 0; i < whole; i += lanes()) {
    const Vec value = capped_at(i, lanes());
    hn::Store(value, kFloats, z + i);
    maximum = hn::Max(maximum, value);
    sum = hn::Add(sum, value);
  }
  if (whole < count) {
    const Vec value = capped_at(whole, count - whole);
    const auto inside = hn::FirstN(kFloats, static_cast<size_t>(count - whole));
    const Vec masked = hn::IfThenElse(inside, value, splat(lowest));
    hn::Store(masked, kFloats, z + whole);
    maximum = hn::Max(maximum, masked);
    sum = hn::Add(sum, hn::IfThenElseZero(inside, value));
  }
  total += static_cast<double>(sum_of(sum));
  return max_of(maximum);
}

// Of exp(z - centre), over a chunk that read_chunk has read.
HWY_INLINE double sum_of_exponentials(const float* z, int64_t count, float centre) {
  const Vec middle = splat(centre);
  return static_cast<double>(sum_of(sum_over(count, [&](int64_t i, int64_t) HWY_ATTR {
    return falling_exp(hn::Sub(hn::Load(kFloats, z + i), middle));
  })));
}

template <typename T>
RowSummary summarise(const CrossEntropyRows& rows, int64_t row) {
  HWY_ALIGN float z[kChunk];
  const T* logits = static_cast<const T*>(rows.logits) + row * rows.vocab;
  const int64_t label = rows.labels[row];
  RowSummary summary;
  for (int64_t begin = 0; begin < rows.vocab; begin += kChunk) {
    const int64_t count = std::min(kChunk, rows.vocab - begin);
    const float maximum = read_chunk(logits + begin, count, rows.soft_cap, z, summary.total);
    if (label >= begin && label < begin + count) summary.picked = z[label - begin];
    if (!(maximum <= summary.maximum)) {  // Larger, or NaN, which then stays.
      if (summary.sum > 0.0)
        summary.sum *= std::exp(static_cast<double>(summary.maximum) - maximum);
      summary.maximum = maximum;
    }
    if (summary.maximum == -std::numeric_limits<float>::infinity()) continue;
    summary.sum += sum_of_exponentials(z, count, summary.maximum);
  }
  return summary;
}

void CrossEntropyLoop(const CrossEntropyRows& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const RowSummary summary =
        rows.dtype == DType::kBF16 ? summarise<BFloat16>(rows, row) : summarise<float>(rows, row);
    const double lse = summary.maximum + std::log(summary.sum);
    const double mean = summary.total / static_cast<double>(rows.vocab);
    double loss = lse - (1.0 - rows.smoothing) * summary.picked;
    if (rows.smoothing > 0.0f) loss -= rows.smoothing * mean;
    if (rows.z_loss > 0.0f) loss += rows.z_loss * lse * lse;
    rows.loss[row] = static_cast<float>(loss);
    rows.log_likelihood[row] = static_cast<float>(summary.picked - lse);
    rows.correct[row] = summary.picked == summary.maximum ? 1.0f : 0.0f;
    rows.lse[row] = static_cast<float>(lse);
  }
}

// d loss/d logit = cotangent·((1 + 2·z_loss·lse)·p - smoothing/vocab - (1 - smoothing)·[label]),
// times the derivative of the cap.
template <typename T>
void grad_row(const CrossEntropyGradRows& rows, int64_t row) {
  const int64_t vocab = rows.vocab;
  const T* logits = static_cast<const T*>(rows.logits) + row * vocab;
  T* dlogits = static_cast<T*>(rows.dlogits) + row * vocab;
  const float cap = rows.soft_cap;
  const float cotangent = rows.cotangent[row];
  const float level = cotangent * rows.smoothing / static_cast<float>(vocab);
  const float rise = cotangent * (1.0f + 2.0f * rows.z_loss * rows.lse[row]);
  const Vec lse = splat(rows.lse[row]);
  const auto gradient = [&](Vec logit, float target) HWY_ATTR {
    const Vec z = capped(logit, cap);
    const Vec p = falling_exp(hn::Sub(z, lse));
    return through_cap(hn::MulSub(p, splat(rise), splat(level + target)), z, cap);
  };
  const int64_t label = rows.labels[row];
  const bool labelled = label >= 0 && label < vocab;
  // Before dlogits overwrites it.
  const float at_label = labelled ? static_cast<float>(logits[label]) : 0.0f;
  for (int64_t i = 0; i < vocab; i += lanes())
    store(gradient(load(logits + i, vocab - i), 0.0f), dlogits + i, vocab - i);
  if (labelled) {
    const float target = cotangent * (1.0f - rows.smoothing);
    dlogits[label] = T(hn::GetLane(gradient(splat(at_label), target)));
  }
}

void CrossEntropyGradLoop(const CrossEntropyGradRows& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    rows.dtype == DType::kBF16 ? grad_row<BFloat16>(rows, row) : grad_row<float>(rows, row);
}

template <typename T>
void shard_row(const CrossEntropyShardRows& rows, int64_t row) {
  HWY_ALIGN float z[kChunk];
  const T* logits = static_cast<const T*>(rows.logits) + row * rows.vocab;
  const float maximum = rows.maximum[row];
  double sum = 0.0, total = 0.0;
  for (int64_t begin = 0; begin < rows.vocab; begin += kChunk) {
    const int64_t count = std::min(kChunk, rows.vocab - begin);
    read_chunk(logits + begin, count, rows.soft_cap, z, total);
    // Nothing but -inf anywhere: a sum of nothing.
    if (maximum == -std::numeric_limits<float>::infinity()) continue;
    sum += sum_of_exponentials(z, count, maximum);
  }
  const int64_t label = rows.labels[row] - rows.origin;
  const bool here = label >= 0 && label < rows.vocab;
  rows.sum[row] = static_cast<float>(sum);
  rows.picked[row] = here ? static_cast<float>(logits[label]) : 0.0f;
  if (rows.total != nullptr) rows.total[row] = static_cast<float>(total);
}

void CrossEntropyShardLoop(const CrossEntropyShardRows& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    rows.dtype == DType::kBF16 ? shard_row<BFloat16>(rows, row) : shard_row<float>(rows, row);
}

template <typename T>
void shard_grad_row(const CrossEntropyShardGradRows& rows, int64_t row) {
  const int64_t vocab = rows.vocab;
  const T* logits = static_cast<const T*>(rows.logits) + row * vocab;
  T* dlogits = static_cast<T*>(rows.dlogits) + row * vocab;
  const Vec maximum = splat(rows.maximum[row]), rise = splat(rows.sum[row]);
  const Vec level = splat(rows.total != nullptr ? rows.total[row] : 0.0f);
  const auto gradient = [&](Vec logit) HWY_ATTR {
    const Vec z = capped(logit, rows.soft_cap);
    const Vec p = falling_exp(hn::Sub(z, maximum));
    return through_cap(hn::MulAdd(p, rise, level), z, rows.soft_cap);
  };
  const int64_t label = rows.labels[row] - rows.origin;
  const bool here = label >= 0 && label < vocab;
  // Before dlogits overwrites it.
  const float at_label = here ? static_cast<float>(logits[label]) : 0.0f;
  for (int64_t i = 0; i < vocab; i += lanes())
    store(gradient(load(logits + i, vocab - i)), dlogits + i, vocab - i);
  if (here) dlogits[label] = T(hn::GetLane(gradient(splat(at_label))) + rows.picked[row]);
}

void CrossEntropyShardGradLoop(const CrossEntropyShardGradRows& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    rows.dtype == DType::kBF16 ? shard_grad_row<BFloat16>(rows, row)
                               : shard_grad_row<float>(rows, row);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(CrossEntropyLoop);
HWY_EXPORT(CrossEntropyGradLoop);
HWY_EXPORT(CrossEntropyShardLoop);
HWY_EXPORT(CrossEntropyShardGradLoop);
}  // namespace

void cross_entropy_rows(const CrossEntropyRows& rows, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(CrossEntropyLoop)(rows, begin, end);
}

void cross_entropy_grad_rows(const CrossEntropyGradRows& rows, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(CrossEntropyGradLoop)(rows, begin, end);
}

void cross_entropy_shard_rows(const CrossEntropyShardRows& rows, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(CrossEntropyShardLoop)(rows, begin, end);
}

void cross_entropy_shard_grad_rows(const CrossEntropyShardGradRows& rows, int64_t begin,
                                   int64_t end) {
  HWY_DYNAMIC_DISPATCH(CrossEntropyShardGradLoop)(rows, begin, end);
}

}  // namespace tessera
#endif  // HWY_ONCE
