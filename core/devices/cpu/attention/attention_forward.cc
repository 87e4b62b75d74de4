// SPDX-License-Identifier: Apache-2.0
// The forward loops of attention: whole blocks of queries, and in decoding runs of keys.
#include <cmath>

#include "core/devices/cpu/attention/attention_kernels.h"
#include "core/devices/cpu/processor.h"
#include "core/ops/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/devices/cpu/attention/attention_forward.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/devices/cpu/attention/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

// The state of the online softmax, one element per query.
struct Running {
  float* maximum;  // Maximum of the scores so far.
  float* sum;      // Sum of exp(score - maximum).
  float* rescale;  // The factor of older sums after the last block of keys.
};

// Runs one step of the online softmax: scores times `scale` become exp(score - maximum), in place.
template <bool kMasked>
void softmax_block(const BlockMask& mask, float scale, float cap, int64_t keys, float* scores,
                   const Running& running) {
  for (int64_t column = 0; column < kQueryBlock; column += lanes()) {
    const QueryLanes queries(mask, column);
    const Vec before = load(running.maximum + column);
    Vec maximum = before;
    for (int64_t key = 0; key < keys; ++key) {
      float* at = scores + key * kQueryBlock + column;
      Vec score = load(at);
      if (scale != 1.0f) score = hn::Mul(score, splat(scale));
      score = capped(score, cap);
      if (kMasked) score = seen(mask, queries, key, score);
      if (kMasked || cap > 0.0f || scale != 1.0f) store(score, at);
      maximum = hn::Max(maximum, score);
    }
    store(maximum, running.maximum + column);
    // For queries that have seen no key yet: -inf - -inf would be NaN.
    const auto nothing = hn::Eq(maximum, splat(kUnseen));
    const Vec center = hn::IfThenZeroElse(nothing, maximum);
    const Vec rescale = falling_exp(hn::Sub(before, center));
    Vec sum = hn::Mul(load(running.sum + column), rescale);
    for (int64_t key = 0; key < keys; ++key) {
      float* at = scores + key * kQueryBlock + column;
      const Vec weight = falling_exp(hn::Sub(load(at), center));
      store(weight, at);
      sum = hn::Add(sum, weight);
    }
    store(sum, running.sum + column);
    store(rescale, running.rescale + column);
  }
}

void scale_rows(int64_t rows, int64_t width, const float* factor, float* x) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < width; j += lanes())
      store(hn::Mul(load(x + i * width + j), splat(factor[i])), x + i * width + j);
}

// The two products of a block in f32. `copy` is scratch for rows that cannot be used in place.
template <typename T>
struct F32Products {
  using Element = T;
  static float softmax_scale(const AttentionShape&) { return 1.0f; }  // Queries are scaled instead.
  static void read_queries(const AttentionShape& shape, HeadRows<const T> from, int64_t count,
                           float* to) {
    transpose_rows(from, count, shape.head_dim, shape.scale, to);
  }
  static void score(HeadRows<const T> key_rows, int64_t keys, int64_t head_dim, const float* query,
                    float* copy, float* scores) {
    const Rows key = wide_rows<T>(key_rows, keys, head_dim, copy);
    small_gemm<false>(keys, kQueryBlock, head_dim, {key.data, key.stride, 1}, {query, kQueryBlock},
                      scores, kQueryBlock);
  }
  static void add_values(HeadRows<const T> value_rows, int64_t keys, int64_t queries,
                         int64_t head_dim, float* scores, float* copy, float* sums) {
    const int64_t width = padded_to_lanes(head_dim);
    small_gemm<true>(queries, width, keys, {scores, 1, kQueryBlock},
                     wide_rows<T>(value_rows, keys, head_dim, copy), sums, width);
  }
};

#if HWY_TARGET <= HWY_AVX3
// The two products with bf16 pairs: query times key along head_dim, weight times value along keys.
struct PairProducts {
  using Element = BFloat16;
  static float softmax_scale(const AttentionShape& shape) { return shape.scale; }
  static void read_queries(const AttentionShape& shape, HeadRows<const BFloat16> from,
                           int64_t count, float* to) {
    transpose_pairs(from, count, shape.head_dim, to);
  }
  static void score(HeadRows<const BFloat16> key_rows, int64_t keys, int64_t head_dim,
                    const float* query, float*, float* scores) {
    small_gemm<false, MultiplyPairs>(keys, kQueryBlock, head_dim / 2, pairs_in_place(key_rows),
                                     {query, kQueryBlock}, scores, kQueryBlock);
  }
  static void add_values(HeadRows<const BFloat16> value_rows, int64_t keys, int64_t queries,
                         int64_t head_dim, float* scores, float* copy, float* sums) {
    const int64_t width = padded_to_lanes(head_dim);
    pair_keys(keys, scores);
    small_gemm<true, MultiplyPairs>(queries, width, (keys + 1) / 2, {scores, 1, kQueryBlock},
                                    pair_rows(value_rows, keys, head_dim, copy), sums, width);
  }
};
#endif

template <class Products>
void attend(const AttentionShape& shape, const AttentionOperands& operands,
            const AttentionResults& results, int64_t batch, int64_t head, int64_t block,
            float* scratch) {
  using T = typename Products::Element;
  const int64_t head_dim = shape.head_dim, width = padded_to_lanes(head_dim);
  const int64_t first = block * kQueryBlock;
  const int64_t queries = std::min(kQueryBlock, shape.queries - first);
  const int64_t kv_head = head / shape.group();
  ScratchAllocator scratch_memory(scratch);
  float* const query = scratch_memory.take(head_dim * kQueryBlock);
  float* const scores = scratch_memory.take(kKeyBlock * kQueryBlock);
  float* const sums = scratch_memory.take(kQueryBlock * width);
  float* const key_rows = scratch_memory.take(kKeyBlock * width);
  float* const value_rows = scratch_memory.take(kKeyBlock * width);
  const Running running{scratch_memory.take(kQueryBlock), scratch_memory.take(kQueryBlock),
                        scratch_memory.take(kQueryBlock)};
  std::fill_n(sums, kQueryBlock * width, 0.0f);
  std::fill_n(running.maximum, kQueryBlock, kUnseen);
  std::fill_n(running.sum, kQueryBlock, 0.0f);

  int32_t segment_buffer[kQueryBlock];
  const int32_t* segments = block_segments(operands, shape, batch, first, queries, segment_buffer);
  Products::read_queries(
      shape,
      head_rows<const T>(operands.q, shape.queries, shape.heads, head_dim, batch, head, first),
      queries, query);
  const float scale = Products::softmax_scale(shape);

  // Key position of the first query of the block.
  const int64_t position = first + (shape.cached ? operands.starts[batch] : shape.first_query);
  const int64_t end = visible_keys(shape, position + queries);
  for (int64_t from = first_key_block(shape, position); from < end; from += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, end - from);
    const BlockMask mask = block_mask(
        shape, position, queries, segments, from, keys,
        segments == nullptr ? nullptr : operands.key_segments + batch * shape.keys + from);
    if (mask.empty) continue;
    Products::score(key_rows_of<const T>(shape, operands.k, batch, kv_head, from), keys, head_dim,
                    query, key_rows, scores);
    mask.full ? softmax_block<false>(mask, scale, shape.cap, keys, scores, running)
              : softmax_block<true>(mask, scale, shape.cap, keys, scores, running);
    scale_rows(queries, width, running.rescale, sums);
    Products::add_values(key_rows_of<const T>(shape, operands.v, batch, kv_head, from), keys,
                         queries, head_dim, scores, value_rows, sums);
  }

  float* const inverse_sum = running.rescale;
  float* const lse = results.lse + (batch * shape.heads + head) * shape.queries + first;
  for (int64_t i = 0; i < queries; ++i) {
    const bool nothing = running.sum[i] == 0.0f;
    inverse_sum[i] = nothing ? 0.0f : 1.0f / running.sum[i];
    lse[i] = nothing ? kEmptyLse : running.maximum[i] + std::log(running.sum[i]);
  }
  const HeadRows<T> out =
      head_rows<T>(results.out, shape.queries, shape.heads, head_dim, batch, head, first);
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < head_dim; j += lanes())
      store(hn::Mul(load(sums + i * width + j), splat(inverse_sum[i])), out.row(i) + j,
            head_dim - j);
}

void AttentionBlock(const AttentionShape& shape, const AttentionOperands& operands,
                    const AttentionResults& results, int64_t batch, int64_t head, int64_t block,
                    float* scratch) {
#if HWY_TARGET <= HWY_AVX3
  if (shape.pairs)
    return attend<PairProducts>(shape, operands, results, batch, head, block, scratch);
#endif
  shape.dtype == DType::kBF16
      ? attend<F32Products<BFloat16>>(shape, operands, results, batch, head, block, scratch)
      : attend<F32Products<float>>(shape, operands, results, batch, head, block, scratch);
}

// Decoding: one run of keys at a time.

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

// Computes scores[query][key] = q·k·scale for all queries of a key, so that keys are read once.
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

// Keys [begin, end) of a run.
struct SeenKeys {
  int64_t begin, end;
};

// Turns scores into exp(score - maximum); those of keys that are not seen become 0.
void weights_of(float cap, SeenKeys seen, int64_t keys, float* scores, float* maximum, float* sum) {
  Vec maxima = splat(kUnseen);
  for (int64_t k = 0; k < keys; k += lanes()) {
    const auto first = [&](int64_t end) HWY_ATTR {
      return hn::FirstN(kFloats, static_cast<size_t>(std::max<int64_t>(end - k, 0)));
    };
    const auto visible = hn::AndNot(first(seen.begin), first(seen.end));
    Vec score = load(scores + k);
    score = capped(score, cap);
    score = hn::IfThenElse(visible, score, splat(kUnseen));
    store(score, scores + k);
    maxima = hn::Max(maxima, score);
  }
  *maximum = max_of(maxima);
  const Vec center = splat(seen.begin < seen.end ? *maximum : 0.0f);
  Vec total = splat(0.0f);
  for (int64_t k = 0; k < keys; k += lanes()) {
    const Vec weight = falling_exp(hn::Sub(load(scores + k), center));
    store(weight, scores + k);
    total = hn::Add(total, weight);
  }
  *sum = sum_of(total);
}

// Computes N vectors of the weighted sum of values.
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
void attend_to_keys(const AttentionShape& shape, const AttentionOperands& operands, int64_t batch,
                    int64_t kv_head, int64_t run, float* memory) {
  const Part part(shape, memory);
  const int64_t group = shape.group(), rows = group * shape.queries;
  const int64_t first = run * kCacheRun;
  const int64_t start = operands.starts[batch];
  const int64_t end = std::min(shape.keys, start + shape.queries);
  int64_t keys = std::clamp<int64_t>(end - first, 0, kCacheRun);
  if (shape.window > 0 && start + 1 - shape.window >= first + keys) keys = 0;  // All are before it.
  const int64_t from = ((batch * shape.kv_heads + kv_head) * shape.keys + first) * shape.head_dim;
  const T* queries[kMostCachedQueries];
  for (int64_t i = 0; i < rows; ++i)
    queries[i] = static_cast<const T*>(operands.q) +
                 ((batch * shape.queries + i / group) * shape.heads + kv_head * group + i % group) *
                     shape.head_dim;
  HWY_ALIGN float scores[kMostCachedQueries * kCacheRun];
  scores_of(shape, queries, rows, static_cast<const T*>(operands.k) + from, keys, scores);
  for (int64_t i = 0; i < rows; ++i) {
    float* const weights = scores + i * kCacheRun;
    std::fill(weights + keys, weights + std::min(kCacheRun, padded_to_lanes(keys)), 0.0f);
    const int64_t seen_end = std::clamp<int64_t>(start + i / group + 1 - first, 0, keys);
    const int64_t before = shape.window == 0 ? 0 : start + i / group + 1 - shape.window - first;
    const SeenKeys seen{std::clamp<int64_t>(before, 0, seen_end), seen_end};
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
    const int64_t query = i / group, head = kv_head * group + i % group;
    results.lse[(batch * shape.heads + head) * shape.queries + query] =
        sum == 0.0f ? kEmptyLse : maximum + std::log(sum);
    T* const out = static_cast<T*>(results.out) +
                   ((batch * shape.queries + query) * shape.heads + head) * shape.head_dim;
    for (int64_t j = 0; j < shape.head_dim; j += lanes())
      store(hn::Mul(load(sums + j), inverse_sum), out + j, shape.head_dim - j);
  }
}

void AttendToRun(const AttentionShape& shape, const AttentionOperands& operands, int64_t batch,
                 int64_t kv_head, int64_t run, float* part) {
  shape.dtype == DType::kBF16 ? attend_to_keys<BFloat16>(shape, operands, batch, kv_head, run, part)
                              : attend_to_keys<float>(shape, operands, batch, kv_head, run, part);
}

void JoinRuns(const AttentionShape& shape, const AttentionResults& results, int64_t batch,
              int64_t kv_head, int64_t runs, float* parts) {
  shape.dtype == DType::kBF16 ? join<BFloat16>(shape, results, batch, kv_head, runs, parts)
                              : join<float>(shape, results, batch, kv_head, runs, parts);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(AttentionBlock);
HWY_EXPORT(AttendToRun);
HWY_EXPORT(JoinRuns);
}  // namespace

bool attention_in_pairs(DType dtype, int64_t head_dim) {
  return dtype == DType::kBF16 && head_dim % 2 == 0 && cpu_level() == CpuLevel::kAvx512Bf16;
}

void attention_block(const AttentionShape& shape, const AttentionOperands& operands,
                     const AttentionResults& results, int64_t batch, int64_t head, int64_t block,
                     float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttentionBlock)(shape, operands, results, batch, head, block, scratch);
}

int64_t attention_scratch_floats(const AttentionShape& shape) {
  const int64_t width = padded_width(shape.head_dim);
  return kQueryBlock * (2 * width + kKeyBlock + 3) + 2 * kKeyBlock * width;
}

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
