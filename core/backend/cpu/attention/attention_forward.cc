// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/backend/cpu/attention/attention_kernels.h"
#include "core/backend/cpu/processor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/attention/attention_forward.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/attention/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

// The state of the online softmax, one element per query.
struct Running {
  float* maximum;  // Of the scores so far.
  float* sum;      // Of exp(score - maximum).
  float* rescale;  // The factor of older sums after the last block of keys.
};

// One step of the online softmax: scores times `scale` become exp(score - maximum), in place.
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
      if (cap > 0.0f) score = capped_score(score, cap);
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
// The same with pairs of bf16: query times key along head_dim, weight times value along keys.
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

  // The key position of the first query of the block.
  const int64_t position = first + (shape.cached ? operands.starts[batch] : 0);
  const int64_t end = visible_keys(shape, position + queries);
  for (int64_t from = 0; from < end; from += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, end - from);
    const BlockMask mask = block_mask(
        shape.causal, position, queries, segments, from, keys,
        segments == nullptr ? nullptr : operands.key_segments + batch * shape.keys + from);
    if (mask.empty) continue;
    Products::score(key_rows_of<const T>(shape, operands.k, batch, kv_head, from), keys, head_dim,
                    query, key_rows, scores);
    if (mask.full) {
      softmax_block<false>(mask, scale, shape.cap, keys, scores, running);
    } else {
      softmax_block<true>(mask, scale, shape.cap, keys, scores, running);
    }
    scale_rows(queries, width, running.rescale, sums);
    Products::add_values(key_rows_of<const T>(shape, operands.v, batch, kv_head, from), keys,
                         queries, head_dim, scores, value_rows, sums);
  }

  float* const inverse_sum = running.rescale;
  float* const lse = results.lse == nullptr
                         ? nullptr
                         : results.lse + (batch * shape.heads + head) * shape.queries + first;
  for (int64_t i = 0; i < queries; ++i) {
    const bool nothing = running.sum[i] == 0.0f;
    inverse_sum[i] = nothing ? 0.0f : 1.0f / running.sum[i];
    if (lse != nullptr) lse[i] = nothing ? 0.0f : running.maximum[i] + std::log(running.sum[i]);
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
  if (shape.dtype == DType::kBF16) {
    attend<F32Products<BFloat16>>(shape, operands, results, batch, head, block, scratch);
  } else {
    attend<F32Products<float>>(shape, operands, results, batch, head, block, scratch);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(AttentionBlock);
}  // namespace

bool attention_in_pairs(DType dtype, int64_t head_dim) {
  return dtype == DType::kBF16 && head_dim % 2 == 0 && cpu_level() == CpuLevel::kAvx512Bf16;
}

int64_t AttentionShape::query_blocks() const { return (queries + kQueryBlock - 1) / kQueryBlock; }

void attention_block(const AttentionShape& shape, const AttentionOperands& operands,
                     const AttentionResults& results, int64_t batch, int64_t head, int64_t block,
                     float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttentionBlock)(shape, operands, results, batch, head, block, scratch);
}

int64_t attention_scratch_floats(const AttentionShape& shape) {
  const int64_t width = padded_width(shape.head_dim);
  return kQueryBlock * (2 * width + kKeyBlock + 3) + 2 * kKeyBlock * width;
}

}  // namespace tessera
#endif  // HWY_ONCE
