// SPDX-License-Identifier: Apache-2.0
// The backward loops of attention (FlashAttention-2: Dao, 2023; attention_kernels.h): the scores of
// a block of queries and keys are computed again from the saved lse, and the block's terms are
// added to dq, dk and dv. Cost: five matrix products for each visible block (seven if kKeys and
// kQueries run apart), with one block of scores in memory.
#include "core/devices/cpu/attention/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/devices/cpu/attention/attention_backward.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/devices/cpu/attention/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

// Turns scores, first multiplied by `scale`, into probabilities; `slopes` change from the
// cotangents of the probabilities to those of the scores before capping. `lse` and `delta` (out ·
// cotangent) are per query.
template <bool kMasked>
void differentiate_block(const BlockMask& mask, float scale, float cap, int64_t keys,
                         const float* lse, const float* delta, float* scores, float* slopes) {
  for (int64_t column = 0; column < kQueryBlock; column += lanes()) {
    const QueryLanes queries(mask, column);
    const Vec row_lse = load(lse + column), row_delta = load(delta + column);
    for (int64_t key = 0; key < keys; ++key) {
      const int64_t at = key * kQueryBlock + column;
      Vec score = load(scores + at);
      if (scale != 1.0f) score = hn::Mul(score, splat(scale));
      score = capped(score, cap);
      const Vec open = kMasked ? seen(mask, queries, key, score) : score;
      const Vec probability = falling_exp(hn::Sub(open, row_lse));
      const Vec slope = hn::Mul(probability, hn::Sub(load(slopes + at), row_delta));
      store(probability, scores + at);
      store(through_cap(slope, score, cap), slopes + at);
    }
  }
}

// Computes the gradients of one key head and its query heads. `kPairs`: multiplies bf16 pairs.
template <typename T, bool kPairs>
class HeadGradient {
 public:
  HeadGradient(const AttentionShape& shape, const AttentionGradOperands& operands, int64_t batch,
               int64_t kv_head, float* scratch)
      : shape_(shape),
        operands_(operands),
        batch_(batch),
        kv_head_(kv_head),
        width_(padded_to_lanes(shape.head_dim)) {
    ScratchAllocator scratch_memory(scratch);
    query_ = scratch_memory.take(shape.head_dim * kQueryBlock);
    cotangent_ = scratch_memory.take(shape.head_dim * kQueryBlock);
    query_rows_ = scratch_memory.take(kQueryBlock * width_);
    cotangent_rows_ = scratch_memory.take(kQueryBlock * width_);
    scores_ = scratch_memory.take(kKeyBlock * kQueryBlock);
    slopes_ = scratch_memory.take(kKeyBlock * kQueryBlock);
    key_rows_ = scratch_memory.take(kKeyBlock * width_);
    value_rows_ = scratch_memory.take(kKeyBlock * width_);
    dk_ = scratch_memory.take(kKeyBlock * width_);
    dv_ = scratch_memory.take(kKeyBlock * width_);
    lse_ = scratch_memory.take(kQueryBlock);
    delta_ = scratch_memory.take(shape.group() * shape.query_blocks() * kQueryBlock);
    dq_ = scratch_memory.take(shape.group() * shape.queries * width_);
  }

  void run() {
    compute_delta();
    std::fill_n(dq_, shape_.group() * shape_.queries * width_, 0.0f);
    for (int64_t from = 0; from < shape_.keys; from += kKeyBlock) sum_keys<Sums::kAll>(from);
    for (int64_t member = 0; member < shape_.group(); ++member)
      write(dq_ + member * shape_.queries * width_, shape_.queries, shape_.scale,
            query_block<T>(operands_.dq, member, 0));
  }

  // Computes dk and dv of one block of keys, with sums in the same order as run().
  void run_keys(int64_t from) {
    compute_delta();
    sum_keys<Sums::kOfKeys>(from);
  }
  // Computes dq of one block of queries of one head, with sums in the same order as run().
  void run_queries(int64_t member, int64_t first) {
    const int64_t queries = std::min(kQueryBlock, shape_.queries - first);
    compute_delta(member, first, first + queries);
    float* const dq = dq_ + (member * shape_.queries + first) * width_;
    std::fill_n(dq, queries * width_, 0.0f);
    const int64_t position = first + shape_.first_query;
    for (int64_t from = first_key_block(shape_, position);
         from < visible_keys(shape_, position + queries); from += kKeyBlock) {
      read_keys(from);
      add_block<Sums::kOfQueries>(member, first, from);
    }
    write(dq, queries, shape_.scale, query_block<T>(operands_.dq, member, first));
  }

 private:
  enum class Sums { kAll, kOfKeys, kOfQueries };

  void read_keys(int64_t from) {
    if (kPairs) return;  // Used in place.
    const int64_t keys = std::min(kKeyBlock, shape_.keys - from);
    key_ = wide_rows<T>(key_block<const T>(operands_.forward.k, from), keys, shape_.head_dim,
                        key_rows_);
    value_ = wide_rows<T>(key_block<const T>(operands_.forward.v, from), keys, shape_.head_dim,
                          value_rows_);
  }

  // Computes the sums over all queries for one block of keys.
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

  // Computes delta = Σ out·cotangent of each query, which the gradient of softmax subtracts.
  void compute_delta() {
    for (int64_t member = 0; member < shape_.group(); ++member)
      compute_delta(member, 0, shape_.queries);
  }
  void compute_delta(int64_t member, int64_t begin, int64_t end) {
    const HeadRows<const T> out = query_block<const T>(operands_.out, member, 0);
    const HeadRows<const T> cotangent = query_block<const T>(operands_.cotangent, member, 0);
    for (int64_t i = begin; i < end; ++i)
      delta(member, 0)[i] = sum_of(sum_over(shape_.head_dim, [&](int64_t j, int64_t left) HWY_ATTR {
        return hn::Mul(load(out.row(i) + j, left), load(cotangent.row(i) + j, left));
      }));
    const int64_t blocks_end = (end + kQueryBlock - 1) / kQueryBlock * kQueryBlock;
    std::fill(delta(member, 0) + end, delta(member, 0) + blocks_end, 0.0f);
  }

  // Adds one block of queries of one head times one block of keys.
  template <Sums kSums>
  void add_block(int64_t member, int64_t first, int64_t from) {
    const AttentionOperands& forward = operands_.forward;
    const int64_t queries = std::min(kQueryBlock, shape_.queries - first);
    const int64_t position = first + shape_.first_query;  // Key position of the first query.
    const int64_t keys = std::min(kKeyBlock, visible_keys(shape_, position + queries) - from);
    if (keys <= 0) return;
    int32_t buffer[kQueryBlock];
    const int32_t* segments = block_segments(forward, shape_, batch_, first, queries, buffer);
    const BlockMask mask = block_mask(
        shape_, position, queries, segments, from, keys,
        segments == nullptr ? nullptr : forward.key_segments + batch_ * shape_.keys + from);
    if (mask.empty) return;

    const float* lse = operands_.lse + (batch_ * shape_.heads + head(member)) * shape_.queries;
    std::fill_n(lse_, kQueryBlock, 0.0f);
    std::copy_n(lse + first, queries, lse_);
    const BlockOperands block{.queries = queries,
                              .keys = keys,
                              .query = query_block<const T>(forward.q, member, first),
                              .cotangent = query_block<const T>(operands_.cotangent, member, first),
                              .key = key_block<const T>(forward.k, from),
                              .value = key_block<const T>(forward.v, from)};
    compute_scores(block);
    const float scale = kPairs ? shape_.scale : 1.0f;
    const float* const row_delta = delta(member, first);
    mask.full ? differentiate_block<false>(mask, scale, shape_.cap, keys, lse_, row_delta, scores_,
                                           slopes_)
              : differentiate_block<true>(mask, scale, shape_.cap, keys, lse_, row_delta, scores_,
                                          slopes_);
    add_products<kSums>(block, dq_ + (member * shape_.queries + first) * width_);
  }

  // The operands of the products of one block.
  struct BlockOperands {
    int64_t queries = 0, keys = 0;
    HeadRows<const T> query, cotangent, key, value;
  };

  // Computes scores, and cotangents of probabilities in `slopes_`.
  void compute_scores(const BlockOperands& block) {
    const int64_t head_dim = shape_.head_dim;
#if HWY_TARGET <= HWY_AVX3
    if constexpr (kPairs) {
      transpose_pairs(block.query, block.queries, head_dim, query_);
      transpose_pairs(block.cotangent, block.queries, head_dim, cotangent_);
      small_gemm<false, MultiplyPairs>(block.keys, kQueryBlock, head_dim / 2,
                                       pairs_in_place(block.key), {query_, kQueryBlock}, scores_,
                                       kQueryBlock);
      small_gemm<false, MultiplyPairs>(block.keys, kQueryBlock, head_dim / 2,
                                       pairs_in_place(block.value), {cotangent_, kQueryBlock},
                                       slopes_, kQueryBlock);
      return;
    }
#endif
    transpose_rows(block.query, block.queries, head_dim, shape_.scale, query_);
    transpose_rows(block.cotangent, block.queries, head_dim, 1.0f, cotangent_);
    small_gemm<false>(block.keys, kQueryBlock, head_dim, {key_.data, key_.stride, 1},
                      {query_, kQueryBlock}, scores_, kQueryBlock);
    small_gemm<false>(block.keys, kQueryBlock, head_dim, {value_.data, value_.stride, 1},
                      {cotangent_, kQueryBlock}, slopes_, kQueryBlock);
  }

  // Adds the products of probabilities and slopes to the gradients.
  template <Sums kSums>
  void add_products(const BlockOperands& block, float* dq) {
    const int64_t head_dim = shape_.head_dim;
#if HWY_TARGET <= HWY_AVX3
    if constexpr (kPairs) {
      // Pairs take half of the space, so those of slopes fit after those of probabilities.
      constexpr int64_t kPairColumns = kQueryBlock / 2;
      float* const slope_pairs = scores_ + kKeyBlock * kPairColumns;
      const int64_t pairs = (block.queries + 1) / 2;
      if constexpr (kSums != Sums::kOfQueries) {
        pair_queries(block.keys, scores_, scores_);
        pair_queries(block.keys, slopes_, slope_pairs);
        small_gemm<true, MultiplyPairs>(
            block.keys, width_, pairs, {scores_, kPairColumns, 1},
            pair_rows(block.cotangent, block.queries, head_dim, cotangent_rows_), dv_, width_);
        small_gemm<true, MultiplyPairs>(
            block.keys, width_, pairs, {slope_pairs, kPairColumns, 1},
            pair_rows(block.query, block.queries, head_dim, query_rows_), dk_, width_);
      }
      if constexpr (kSums != Sums::kOfKeys) {
        pair_keys(block.keys, slopes_);
        small_gemm<true, MultiplyPairs>(
            block.queries, width_, (block.keys + 1) / 2, {slopes_, 1, kQueryBlock},
            pair_rows(block.key, block.keys, head_dim, key_rows_), dq, width_);
      }
      return;
    }
#endif
    if constexpr (kSums != Sums::kOfQueries) {
      small_gemm<true>(block.keys, width_, block.queries, {scores_, kQueryBlock, 1},
                       wide_rows<T>(block.cotangent, block.queries, head_dim, cotangent_rows_), dv_,
                       width_);
      small_gemm<true>(block.keys, width_, block.queries, {slopes_, kQueryBlock, 1},
                       wide_rows<T>(block.query, block.queries, head_dim, query_rows_), dk_,
                       width_);
    }
    if constexpr (kSums != Sums::kOfKeys)
      small_gemm<true>(block.queries, width_, block.keys, {slopes_, 1, kQueryBlock}, key_, dq,
                       width_);
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

template <typename T, bool kPairs>
void run_part(const AttentionShape& shape, const AttentionGradOperands& operands,
              const AttentionGradPart& part, float* scratch) {
  HeadGradient<T, kPairs> gradient(shape, operands, part.batch, part.kv_head, scratch);
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
#if HWY_TARGET <= HWY_AVX3
  if (shape.pairs) return run_part<BFloat16, true>(shape, operands, part, scratch);
#endif
  shape.dtype == DType::kBF16 ? run_part<BFloat16, false>(shape, operands, part, scratch)
                              : run_part<float, false>(shape, operands, part, scratch);
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

int64_t attention_grad_scratch_floats(const AttentionShape& shape) {
  const int64_t width = padded_width(shape.head_dim);
  const int64_t rows = shape.group() * shape.query_blocks() * kQueryBlock;
  return kQueryBlock * (4 * width + 2 * kKeyBlock + 1) + 4 * kKeyBlock * width + rows * (width + 1);
}

}  // namespace tessera
#endif  // HWY_ONCE
