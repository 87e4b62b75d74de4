// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/attention_loops.h"
#include "core/backend/cpu/attention_sizes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/attention_backward_loops.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

// Scores become probabilities; `slopes`, which hold the cotangents of probabilities, become those
// of scores (before capping). `lse` and `delta` (out · cotangent) are a query's.
template <bool kMasked>
void differentiate_block(const BlockMask& mask, float cap, int64_t keys, const float* lse,
                         const float* delta, float* scores, float* slopes) {
  for (int64_t column = 0; column < kQueryBlock; column += lanes()) {
    const QueryLanes queries(mask, column);
    const Vec row_lse = load(lse + column), row_delta = load(delta + column);
    for (int64_t key = 0; key < keys; ++key) {
      const int64_t at = key * kQueryBlock + column;
      Vec score = load(scores + at);
      if (cap > 0.0f) score = capped_score(score, cap);
      const Vec open = kMasked ? seen(mask, queries, key, score) : score;
      const Vec probability = falling_exp(hn::Sub(open, row_lse));
      Vec slope = hn::Mul(probability, hn::Sub(load(slopes + at), row_delta));
      if (cap > 0.0f) {
        const Vec part = hn::Mul(score, splat(1.0f / cap));
        slope = hn::Mul(slope, hn::NegMulAdd(part, part, splat(1.0f)));
      }
      store(probability, scores + at);
      store(slope, slopes + at);
    }
  }
}

// One key head of one example, and the query heads that read it.
template <typename T>
class HeadGradient {
 public:
  HeadGradient(const AttentionShape& shape, const AttentionGradOperands& operands, int64_t batch,
               int64_t kv_head, float* scratch)
      : shape_(shape),
        operands_(operands),
        batch_(batch),
        kv_head_(kv_head),
        width_(padded_to_lanes(shape.head_dim)) {
    ScratchCutter cut(scratch);
    query_ = cut.take(shape.head_dim * kQueryBlock);
    cotangent_ = cut.take(shape.head_dim * kQueryBlock);
    query_rows_ = cut.take(kQueryBlock * width_);
    cotangent_rows_ = cut.take(kQueryBlock * width_);
    scores_ = cut.take(kKeyBlock * kQueryBlock);
    slopes_ = cut.take(kKeyBlock * kQueryBlock);
    key_rows_ = cut.take(kKeyBlock * width_);
    value_rows_ = cut.take(kKeyBlock * width_);
    dk_ = cut.take(kKeyBlock * width_);
    dv_ = cut.take(kKeyBlock * width_);
    lse_ = cut.take(kQueryBlock);
    delta_ = cut.take(shape.group() * shape.query_blocks() * kQueryBlock);
    dq_ = cut.take(shape.group() * shape.queries * width_);
  }

  void run() {
    find_delta();
    std::fill_n(dq_, shape_.group() * shape_.queries * width_, 0.0f);
    for (int64_t from = 0; from < shape_.keys; from += kKeyBlock) sum_keys<Sums::kAll>(from);
    for (int64_t member = 0; member < shape_.group(); ++member)
      write(dq_ + member * shape_.queries * width_, shape_.queries, shape_.scale,
            query_block<T>(operands_.dq, member, 0));
  }

  // In parts, with sums in the same order: dk and dv of one block of keys…
  void run_keys(int64_t from) {
    find_delta();
    sum_keys<Sums::kOfKeys>(from);
  }
  // …and dq of one block of queries of one head.
  void run_queries(int64_t member, int64_t first) {
    const int64_t queries = std::min(kQueryBlock, shape_.queries - first);
    find_delta(member, first, first + queries);
    float* const dq = dq_ + (member * shape_.queries + first) * width_;
    std::fill_n(dq, queries * width_, 0.0f);
    for (int64_t from = 0; from < visible_keys(shape_, first + queries); from += kKeyBlock) {
      read_keys(from);
      add_block<Sums::kOfQueries>(member, first, from);
    }
    write(dq, queries, shape_.scale, query_block<T>(operands_.dq, member, first));
  }

 private:
  enum class Sums { kAll, kOfKeys, kOfQueries };

  void read_keys(int64_t from) {
    const int64_t keys = std::min(kKeyBlock, shape_.keys - from);
    key_ = wide_rows<T>(key_block<const T>(operands_.forward.k, from), keys, shape_.head_dim,
                        key_rows_);
    value_ = wide_rows<T>(key_block<const T>(operands_.forward.v, from), keys, shape_.head_dim,
                          value_rows_);
  }

  // What all queries add for one block of keys.
  template <Sums kSums>
  void sum_keys(int64_t from) {
    const int64_t keys = std::min(kKeyBlock, shape_.keys - from);
    read_keys(from);
    std::fill_n(dk_, keys * width_, 0.0f);
    std::fill_n(dv_, keys * width_, 0.0f);
    for (int64_t member = 0; member < shape_.group(); ++member)
      for (int64_t first = 0; first < shape_.queries; first += kQueryBlock)
        add_block<kSums>(member, first, from);
    write(dk_, keys, shape_.scale, key_block<T>(operands_.dk, from));
    write(dv_, keys, 1.0f, key_block<T>(operands_.dv, from));
  }

  template <typename U, typename Void>
  HeadRows<U> query_block(Void* tensor, int64_t member, int64_t first) const {
    return head_rows<U>(tensor, shape_.queries, shape_.heads, shape_.head_dim, batch_, head(member),
                        first);
  }
  template <typename U, typename Void>
  HeadRows<U> key_block(Void* tensor, int64_t first) const {
    return head_rows<U>(tensor, shape_.keys, shape_.kv_heads, shape_.head_dim, batch_, kv_head_,
                        first);
  }
  int64_t head(int64_t member) const { return kv_head_ * shape_.group() + member; }
  float* delta(int64_t member, int64_t first) const {
    return delta_ + member * shape_.query_blocks() * kQueryBlock + first;
  }

  // The sum of out times its cotangent, for each query: what the softmax's gradient takes off.
  void find_delta() {
    for (int64_t member = 0; member < shape_.group(); ++member)
      find_delta(member, 0, shape_.queries);
  }
  void find_delta(int64_t member, int64_t begin, int64_t end) {
    const HeadRows<const T> out = query_block<const T>(operands_.out, member, 0);
    const HeadRows<const T> cotangent = query_block<const T>(operands_.cotangent, member, 0);
    for (int64_t i = begin; i < end; ++i)
      delta(member, 0)[i] = sum_of(sum_over(shape_.head_dim, [&](int64_t j, int64_t left) HWY_ATTR {
        return hn::Mul(load(out.row(i) + j, left), load(cotangent.row(i) + j, left));
      }));
    const int64_t blocks_end = (end + kQueryBlock - 1) / kQueryBlock * kQueryBlock;
    std::fill(delta(member, 0) + end, delta(member, 0) + blocks_end, 0.0f);
  }

  // What one block of queries of one head adds for one block of keys.
  template <Sums kSums>
  void add_block(int64_t member, int64_t first, int64_t from) {
    const AttentionOperands& forward = operands_.forward;
    const int64_t head_dim = shape_.head_dim;
    const int64_t queries = std::min(kQueryBlock, shape_.queries - first);
    const int64_t keys = std::min(kKeyBlock, visible_keys(shape_, first + queries) - from);
    if (keys <= 0) return;
    int32_t buffer[kQueryBlock];
    const int32_t* segments = block_segments(forward, shape_, batch_, first, queries, buffer);
    const BlockMask mask = block_mask(
        shape_.causal, first, queries, segments, from, keys,
        segments == nullptr ? nullptr : forward.key_segments + batch_ * shape_.keys + from);
    if (mask.empty) return;

    const HeadRows<const T> query = query_block<const T>(forward.q, member, first);
    const HeadRows<const T> cotangent = query_block<const T>(operands_.cotangent, member, first);
    transpose_rows(query, queries, head_dim, shape_.scale, query_);
    transpose_rows(cotangent, queries, head_dim, 1.0f, cotangent_);
    const float* lse = operands_.lse + (batch_ * shape_.heads + head(member)) * shape_.queries;
    std::fill_n(lse_, kQueryBlock, 0.0f);
    std::copy_n(lse + first, queries, lse_);

    small_product<false>(keys, kQueryBlock, head_dim, {key_.data, key_.stride, 1},
                         {query_, kQueryBlock}, scores_, kQueryBlock);
    small_product<false>(keys, kQueryBlock, head_dim, {value_.data, value_.stride, 1},
                         {cotangent_, kQueryBlock}, slopes_, kQueryBlock);
    if (mask.full) {
      differentiate_block<false>(mask, shape_.cap, keys, lse_, delta(member, first), scores_,
                                 slopes_);
    } else {
      differentiate_block<true>(mask, shape_.cap, keys, lse_, delta(member, first), scores_,
                                slopes_);
    }
    if constexpr (kSums != Sums::kOfQueries) {
      small_product<true>(keys, width_, queries, {scores_, kQueryBlock, 1},
                          wide_rows<T>(cotangent, queries, head_dim, cotangent_rows_), dv_, width_);
      small_product<true>(keys, width_, queries, {slopes_, kQueryBlock, 1},
                          wide_rows<T>(query, queries, head_dim, query_rows_), dk_, width_);
    }
    if constexpr (kSums != Sums::kOfKeys)
      small_product<true>(queries, width_, keys, {slopes_, 1, kQueryBlock}, key_,
                          dq_ + (member * shape_.queries + first) * width_, width_);
  }

  void write(const float* rows, int64_t count, float factor, HeadRows<T> to) const {
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < shape_.head_dim; j += lanes())
        store(hn::Mul(load(rows + i * width_ + j), splat(factor)), to.row(i) + j,
              shape_.head_dim - j);
  }

  const AttentionShape& shape_;
  const AttentionGradOperands& operands_;
  int64_t batch_, kv_head_, width_;
  Rows key_, value_;                     // This block of keys.
  float *query_, *cotangent_;            // Transposed.
  float *query_rows_, *cotangent_rows_;  // Copies, where rows cannot be used in place.
  float *key_rows_, *value_rows_;
  float *scores_, *slopes_;
  float *dk_, *dv_;  // Sums of this block of keys.
  float *lse_, *delta_;
  float* dq_;  // Sums of all queries.
};

template <typename T>
void run_part(const AttentionShape& shape, const AttentionGradOperands& operands,
              const AttentionGradPart& part, float* scratch) {
  HeadGradient<T> gradient(shape, operands, part.batch, part.kv_head, scratch);
  switch (part.kind) {
    case AttentionGradPart::Kind::kHead:
      return gradient.run();
    case AttentionGradPart::Kind::kKeys:
      return gradient.run_keys(part.block * kKeyBlock);
    case AttentionGradPart::Kind::kQueries:
      return gradient.run_queries(part.member, part.block * kQueryBlock);
  }
}

void AttentionGrad(const AttentionShape& shape, const AttentionGradOperands& operands,
                   const AttentionGradPart& part, float* scratch) {
  if (shape.dtype == DType::kBF16) {
    run_part<BFloat16>(shape, operands, part, scratch);
  } else {
    run_part<float>(shape, operands, part, scratch);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(AttentionGrad);
}  // namespace

void attention_grad(const AttentionShape& shape, const AttentionGradOperands& operands,
                    const AttentionGradPart& part, float* scratch) {
  HWY_DYNAMIC_DISPATCH(AttentionGrad)(shape, operands, part, scratch);
}

int64_t AttentionShape::key_blocks() const { return (keys + kKeyBlock - 1) / kKeyBlock; }

int64_t attention_grad_scratch_floats(const AttentionShape& shape) {
  const int64_t width = padded_width(shape.head_dim);
  const int64_t rows = shape.group() * shape.query_blocks() * kQueryBlock;
  return kQueryBlock * (4 * width + 2 * kKeyBlock + 1) + 4 * kKeyBlock * width + rows * (width + 1);
}

}  // namespace tessera
#endif  // HWY_ONCE
