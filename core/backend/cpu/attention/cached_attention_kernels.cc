// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/attention/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/attention/cached_attention_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/attention/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

// The partial result of one run: maxima and sums of all queries, then `width` values per query.
struct Part {
  Part(const AttentionShape& shape, float* memory)
      : width(padded_width(shape.head_dim)),
        maximum(memory),
        sum(memory + kMostCachedQueries),
        values(memory + 2 * kMostCachedQueries) {}
  float* row(int64_t i) const { return values + i * width; }

  int64_t width;
  float *maximum, *sum, *values;
};

// scores[query][key] = q·k·scale, all queries of a key together so that keys are read once.
template <typename T>
void scores_of(const AttentionShape& shape, const T* const* queries, int64_t rows, const T* key,
               int64_t keys, float* scores) {
  const int64_t width = shape.head_dim;
  for (int64_t k = 0; k < keys; ++k, key += width) {
    for (int64_t i = 0; i < rows; ++i) {
      const T* const query = queries[i];
      const Vec products = sum_over(width, [&](int64_t j, int64_t left) HWY_ATTR {
        return hn::Mul(load(query + j, left), load(key + j, left));
      });
      scores[i * kCacheRun + k] = sum_of(products) * shape.scale;
    }
  }
}

// Scores become exp(score - maximum); those from `seen` on become 0.
void weights_of(float cap, int64_t seen, int64_t keys, float* scores, float* maximum, float* sum) {
  Vec maxima = splat(kUnseen);
  for (int64_t k = 0; k < keys; k += lanes()) {
    const auto visible = hn::FirstN(kFloats, static_cast<size_t>(std::max<int64_t>(seen - k, 0)));
    Vec score = load(scores + k);
    if (cap > 0.0f) score = capped_score(score, cap);
    score = hn::IfThenElse(visible, score, splat(kUnseen));
    store(score, scores + k);
    maxima = hn::Max(maxima, score);
  }
  *maximum = max_of(maxima);
  const Vec center = splat(seen > 0 ? *maximum : 0.0f);
  Vec total = splat(0.0f);
  for (int64_t k = 0; k < keys; k += lanes()) {
    const Vec weight = falling_exp(hn::Sub(load(scores + k), center));
    store(weight, scores + k);
    total = hn::Add(total, weight);
  }
  *sum = sum_of(total);
}

// N vectors of the weighted sum of values.
template <int N, typename T>
HWY_INLINE void weigh_columns(int64_t width, int64_t keys, const T* value, const float* weights,
                              int64_t left, float* to) {
  Vec sum[N];
  for (int j = 0; j < N; ++j) sum[j] = splat(0.0f);
  for (int64_t k = 0; k < keys; ++k, value += width) {
    const Vec weight = splat(weights[k]);
    for (int j = 0; j < N; ++j)
      sum[j] = hn::MulAdd(weight, load(value + j * lanes(), left - j * lanes()), sum[j]);
  }
  for (int j = 0; j < N; ++j) store(sum[j], to + j * lanes());
}

template <typename T>
void weigh(int64_t width, int64_t keys, const T* value, const float* weights, float* to) {
  int64_t column = 0;
  for (; column + 3 * lanes() < width; column += 4 * lanes())
    weigh_columns<4>(width, keys, value + column, weights, width - column, to + column);
  for (; column < width; column += lanes())
    weigh_columns<1>(width, keys, value + column, weights, width - column, to + column);
}

template <typename T>
void attend(const AttentionShape& shape, const AttentionOperands& operands, int64_t batch,
            int64_t kv_head, int64_t run, float* memory) {
  const Part part(shape, memory);
  const int64_t group = shape.group(), rows = group * shape.queries;
  const int64_t first = run * kCacheRun;
  const int64_t start = operands.starts[batch];
  const int64_t end = std::min(shape.keys, start + shape.queries);
  const int64_t keys = std::clamp<int64_t>(end - first, 0, kCacheRun);
  const int64_t from = ((batch * shape.kv_heads + kv_head) * shape.keys + first) * shape.head_dim;
  const T* queries[kMostCachedQueries];
  for (int64_t i = 0; i < rows; ++i) {
    queries[i] = static_cast<const T*>(operands.q) +
                 ((batch * shape.queries + i / group) * shape.heads + kv_head * group + i % group) *
                     shape.head_dim;
  }
  HWY_ALIGN float scores[kMostCachedQueries * kCacheRun];
  scores_of(shape, queries, rows, static_cast<const T*>(operands.k) + from, keys, scores);
  for (int64_t i = 0; i < rows; ++i) {
    float* const weights = scores + i * kCacheRun;
    std::fill(weights + keys, weights + std::min(kCacheRun, padded_to_lanes(keys)), 0.0f);
    const int64_t seen = std::clamp<int64_t>(start + i / group + 1 - first, 0, keys);
    weights_of(shape.cap, seen, keys, weights, part.maximum + i, part.sum + i);
    weigh(shape.head_dim, keys, static_cast<const T*>(operands.v) + from, weights, part.row(i));
  }
}

// Combines runs in order: both sums are rescaled to their common maximum.
template <typename T>
void join(const AttentionShape& shape, const AttentionResults& results, int64_t batch,
          int64_t kv_head, int64_t runs, float* memory) {
  const int64_t group = shape.group(), floats = cached_run_floats(shape);
  const Part all(shape, memory);
  for (int64_t i = 0; i < group * shape.queries; ++i) {
    float* const sums = all.row(i);
    float maximum = all.maximum[i], sum = all.sum[i];
    for (int64_t run = 1; run < runs; ++run) {
      const Part next(shape, memory + run * floats);
      if (next.sum[i] == 0.0f) continue;
      const float common = std::max(maximum, next.maximum[i]);
      const Vec old_factor = falling_exp(splat(sum == 0.0f ? kUnseen : maximum - common));
      const Vec new_factor = falling_exp(splat(next.maximum[i] - common));
      sum = sum * hn::GetLane(old_factor) + next.sum[i] * hn::GetLane(new_factor);
      maximum = common;
      const float* const values = next.row(i);
      for (int64_t j = 0; j < shape.head_dim; j += lanes())
        store(hn::MulAdd(load(values + j), new_factor, hn::Mul(load(sums + j), old_factor)),
              sums + j);
    }
    const Vec inverse_sum = splat(sum == 0.0f ? 0.0f : 1.0f / sum);
    T* const out =
        static_cast<T*>(results.out) +
        ((batch * shape.queries + i / group) * shape.heads + kv_head * group + i % group) *
            shape.head_dim;
    for (int64_t j = 0; j < shape.head_dim; j += lanes())
      store(hn::Mul(load(sums + j), inverse_sum), out + j, shape.head_dim - j);
  }
}

void AttendToRun(const AttentionShape& shape, const AttentionOperands& operands, int64_t batch,
                 int64_t kv_head, int64_t run, float* part) {
  if (shape.dtype == DType::kBF16) {
    attend<BFloat16>(shape, operands, batch, kv_head, run, part);
  } else {
    attend<float>(shape, operands, batch, kv_head, run, part);
  }
}

void JoinRuns(const AttentionShape& shape, const AttentionResults& results, int64_t batch,
              int64_t kv_head, int64_t runs, float* parts) {
  if (shape.dtype == DType::kBF16) {
    join<BFloat16>(shape, results, batch, kv_head, runs, parts);
  } else {
    join<float>(shape, results, batch, kv_head, runs, parts);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(AttendToRun);
HWY_EXPORT(JoinRuns);
}  // namespace

int64_t cached_run_floats(const AttentionShape& shape) {
  return kMostCachedQueries * 2 + shape.group() * shape.queries * padded_width(shape.head_dim);
}

void attend_to_run(const AttentionShape& shape, const AttentionOperands& operands, int64_t batch,
                   int64_t kv_head, int64_t run, float* part) {
  HWY_DYNAMIC_DISPATCH(AttendToRun)(shape, operands, batch, kv_head, run, part);
}

void join_runs(const AttentionShape& shape, const AttentionResults& results, int64_t batch,
               int64_t kv_head, int64_t runs, float* parts) {
  HWY_DYNAMIC_DISPATCH(JoinRuns)(shape, results, batch, kv_head, runs, parts);
}

}  // namespace tessera
#endif  // HWY_ONCE
