// SPDX-License-Identifier: Apache-2.0
// Shared by the forward and backward loops of attention (attention_kernels.h): blocks of rows in
// f32, transposed queries, and masks of blocks. Included once per target, as Highway's -inl.h files
// are.
#if defined(TESSERA_ATTENTION_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ATTENTION_BLOCK_INL_H_
#undef TESSERA_ATTENTION_BLOCK_INL_H_
#else
#define TESSERA_ATTENTION_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <hwy/highway.h>

#include "core/devices/cpu/attention/attention_kernels.h"
#include "core/devices/cpu/gemm/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

inline constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// Returns the number of keys that queries before `end` may see, by position.
HWY_INLINE int64_t visible_keys(const AttentionShape& shape, int64_t end) {
  return shape.causal ? std::min(shape.keys, end) : shape.keys;
}

// Returns the first key that queries from position `first` on may see, rounded down to a block.
HWY_INLINE int64_t first_key_block(const AttentionShape& shape, int64_t first) {
  if (shape.window == 0) return 0;
  return std::max<int64_t>(0, first - shape.window + 1) / kKeyBlock * kKeyBlock;
}

HWY_INLINE int64_t padded_to_lanes(int64_t count) {
  return (count + lanes() - 1) / lanes() * lanes();
}

// The rows of one head, `stride` elements apart.
template <typename T>
struct HeadRows {
  T* data = nullptr;
  int64_t stride = 0;
  T* row(int64_t i) const { return data + i * stride; }
};

// Head `head` of batch `batch` of a tensor ["batch rows heads head_dim"], from row `first` on.
template <typename T, typename Void>
HWY_INLINE HeadRows<T> head_rows(Void* tensor, int64_t rows, int64_t heads, int64_t head_dim,
                                 int64_t batch, int64_t head, int64_t first) {
  const int64_t stride = heads * head_dim;
  return {static_cast<T*>(tensor) + (batch * rows + first) * stride + head * head_dim, stride};
}

// The rows of one key head from `first` on.
template <typename T, typename Void>
HWY_INLINE HeadRows<T> key_rows_of(const AttentionShape& shape, Void* tensor, int64_t batch,
                                   int64_t kv_head, int64_t first) {
  if (!shape.cached)
    return head_rows<T>(tensor, shape.keys, shape.kv_heads, shape.head_dim, batch, kv_head, first);
  const int64_t row = (batch * shape.kv_heads + kv_head) * shape.keys + first;
  return {static_cast<T*>(tensor) + row * shape.head_dim, shape.head_dim};
}

// The rows in f32, padded with zeros to whole vectors: in place if possible, else copied to
// `scratch`.
template <typename T>
HWY_INLINE Rows wide_rows(HeadRows<const T> from, int64_t count, int64_t head_dim, float* scratch) {
  const int64_t width = padded_to_lanes(head_dim);
  if constexpr (std::is_same_v<T, float>) {
    if (width == head_dim) return {from.data, from.stride};
  }
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < width; j += lanes())
      store(load(from.row(i) + j, head_dim - j), scratch + i * width + j);
  return {scratch, width};
}

// Transposes rows times `factor` to ["head_dim", kQueryBlock]; columns without a row are 0. Four
// rows at a time are interleaved to [element][row] in `mixed`.
template <typename T>
HWY_INLINE void transpose_rows(HeadRows<const T> from, int64_t count, int64_t head_dim,
                               float factor, float* to) {
  HWY_ALIGN float mixed[4 * HWY_MAX_BYTES / sizeof(float)];
  for (int64_t i = 0; i < kQueryBlock; i += 4) {
    for (int64_t j = 0; j < head_dim; j += lanes()) {
      const auto part = [&](int64_t row) HWY_ATTR {
        if (row >= count) return splat(0.0f);
        return hn::Mul(load(from.row(row) + j, head_dim - j), splat(factor));
      };
      hn::StoreInterleaved4(part(i), part(i + 1), part(i + 2), part(i + 3), kFloats, mixed);
      const int64_t elements = std::min(lanes(), head_dim - j);
      for (int64_t element = 0; element < elements; ++element)
        std::memcpy(to + (j + element) * kQueryBlock + i, mixed + 4 * element, 4 * sizeof(float));
    }
  }
}

#if HWY_TARGET <= HWY_AVX3
// Transposes bf16 rows to pairs along head_dim, unscaled: ["head_dim / 2", kQueryBlock].
HWY_INLINE void transpose_pairs(HeadRows<const BFloat16> from, int64_t count, int64_t head_dim,
                                float* to) {
  HWY_ALIGN Vec square[kMostLanes];
  for (int64_t i = 0; i < kQueryBlock; i += lanes()) {
    for (int64_t u = 0; u < head_dim / 2; u += lanes()) {
      for (int64_t j = 0; j < lanes(); ++j)
        square[j] = i + j < count ? Bf16PairFormat::along(from.row(i + j) + 2 * u, head_dim - 2 * u)
                                  : splat(0.0f);
      transpose_square(square);
      for (int64_t j = 0; j < std::min(lanes(), head_dim / 2 - u); ++j)
        store(square[j], to + (u + j) * kQueryBlock + i);
    }
  }
}

// Packs bf16 rows as pairs of neighbouring rows, ["rows / 2", "head_dim"], padded with zeros.
HWY_INLINE Rows pair_rows(HeadRows<const BFloat16> from, int64_t count, int64_t head_dim,
                          float* to) {
  const int64_t width = padded_to_lanes(head_dim);
  for (int64_t i = 0; i < count; i += 2) {
    for (int64_t j = 0; j < width; j += lanes()) {
      const BFloat16* const next = i + 1 < count ? from.row(i + 1) + j : nullptr;
      store(Bf16PairFormat::across(from.row(i) + j, next, head_dim - j), to + i / 2 * width + j);
    }
  }
  return {to, width};
}

// Returns bf16 rows in place, as pairs along head_dim.
HWY_INLINE Factor pairs_in_place(HeadRows<const BFloat16> from) {
  return {reinterpret_cast<const float*>(from.data), from.stride / 2, 1};
}

// Packs scores ["keys", kQueryBlock] in place to pairs of adjacent keys, ["keys / 2", kQueryBlock].
HWY_INLINE void pair_keys(int64_t keys, float* scores) {
  for (int64_t key = 0; key < keys; key += 2) {
    for (int64_t column = 0; column < kQueryBlock; column += lanes()) {
      const float* const low = scores + key * kQueryBlock + column;
      const Vec high = key + 1 < keys ? load(low + kQueryBlock) : splat(0.0f);
      store(paired(load(low), high), scores + key / 2 * kQueryBlock + column);
    }
  }
}

// Packs scores to pairs of neighbouring queries, ["keys", kQueryBlock / 2]; may be in place.
HWY_INLINE void pair_queries(int64_t keys, const float* scores, float* to) {
  for (int64_t key = 0; key < keys; ++key) {
    auto* const row = reinterpret_cast<BFloat16*>(to + key * kQueryBlock / 2);
    for (int64_t column = 0; column < kQueryBlock; column += lanes())
      MultiplyPairs::store_bf16(load(scores + key * kQueryBlock + column), row + column, lanes());
  }
}
#endif

// The mask of one block of queries and one block of keys.
struct BlockMask {
  bool empty = false;  // No score is visible.
  bool full = true;    // All scores are visible.
  bool causal = false;
  bool segments = false;
  int64_t window = 0;  // 0: no key of the block is before a query's window.
  int64_t first_query = 0, first_key = 0;
  const int32_t* query_segment = nullptr;  // kQueryBlock of them.
  const int32_t* key_segment = nullptr;    // Segments of the keys from first_key on.
};

struct Bounds {
  int32_t low, high;
};
HWY_INLINE Bounds bounds_of(const int32_t* values, int64_t count) {
  Bounds bounds{values[0], values[0]};
  for (int64_t i = 1; i < count; ++i) {
    bounds.low = std::min(bounds.low, values[i]);
    bounds.high = std::max(bounds.high, values[i]);
  }
  return bounds;
}

HWY_INLINE BlockMask block_mask(const AttentionShape& shape, int64_t first_query, int64_t queries,
                                const int32_t* query_segment, int64_t first_key, int64_t keys,
                                const int32_t* key_segment) {
  BlockMask mask{.first_query = first_query,
                 .first_key = first_key,
                 .query_segment = query_segment,
                 .key_segment = key_segment};
  mask.causal = shape.causal && first_key + keys - 1 > first_query;
  if (query_segment != nullptr) {
    const Bounds q = bounds_of(query_segment, queries), k = bounds_of(key_segment, keys);
    mask.segments = q.low != q.high || k.low != k.high;
    mask.empty = q.high < k.low || k.high < q.low;
  }
  if (shape.window > 0) {
    if (first_key <= first_query + queries - 1 - shape.window) mask.window = shape.window;
    mask.empty = mask.empty || first_key + keys <= first_query - shape.window + 1;
  }
  mask.full = !mask.causal && !mask.segments && mask.window == 0;
  return mask;
}

// The positions and segments of a vector of queries.
struct QueryLanes {
  HWY_INLINE QueryLanes(const BlockMask& mask, int64_t column)
      : index(hn::Iota(Ints(), static_cast<int32_t>(mask.first_query + column))),
        segment(mask.segments ? hn::LoadU(Ints(), mask.query_segment + column) : hn::Zero(Ints())) {
  }
  hn::Vec<Ints> index, segment;
};

// Returns the score, or -inf where the key is masked.
HWY_INLINE Vec seen(const BlockMask& mask, const QueryLanes& queries, int64_t key, Vec score) {
  if (mask.causal) {
    const auto position = hn::Set(Ints(), static_cast<int32_t>(mask.first_key + key));
    const auto later = hn::Gt(position, queries.index);
    score = hn::IfThenElse(hn::RebindMask(kFloats, later), splat(kUnseen), score);
  }
  if (mask.window > 0) {
    const auto end = hn::Set(Ints(), static_cast<int32_t>(mask.first_key + key + mask.window));
    const auto inside = hn::Gt(end, queries.index);
    score = hn::IfThenElse(hn::RebindMask(kFloats, inside), score, splat(kUnseen));
  }
  if (mask.segments) {
    const auto same = hn::Eq(hn::Set(Ints(), mask.key_segment[key]), queries.segment);
    score = hn::IfThenElse(hn::RebindMask(kFloats, same), score, splat(kUnseen));
  }
  return score;
}

// The query segments of a block, padded to kQueryBlock in `buffer`; null without segments.
HWY_INLINE const int32_t* block_segments(const AttentionOperands& operands,
                                         const AttentionShape& shape, int64_t batch, int64_t first,
                                         int64_t count, int32_t* buffer) {
  if (operands.segments == nullptr) return nullptr;
  const int32_t* from = operands.segments + batch * shape.queries + first;
  std::copy_n(from, count, buffer);
  std::fill(buffer + count, buffer + kQueryBlock, from[count - 1]);
  return buffer;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_ATTENTION_BLOCK_INL_H_
