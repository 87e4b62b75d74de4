// SPDX-License-Identifier: Apache-2.0
// The gradients of attention, after FlashAttention-2 (Dao, 2023), without atomics, so that results
// have the same bits on every run. One kernel owns blocks of keys and streams the queries that see
// them (dk, dv), one owns blocks of queries and streams keys (dq); both recompute probabilities
// from the saved lse = log(sum of exp(score)). With delta = sum(cotangent·out):
//   dscore = probability·(cotangent·value - delta), dv += probability·cotangent,
//   dk += dscore·query, dq += dscore·key.
// The kernel of dk and dv computes transposed scores (rows are keys), so that in both kernels the
// fragments of the scores are left factors of the next product and never leave registers.
#include <type_traits>

#include "plugins/cuda/attention/scores.cuh"

namespace tessera::cuda {
namespace {

// Shared memory of a block: two resident tiles, then two of each streamed tensor.
template <typename T, int kWidth>
struct GradientTiles {
  static constexpr TileShape kShape = gradient_tiles(sizeof(T), kWidth);
  static constexpr int kRows = kShape.rows(), kStreamed = kShape.streamed;
  static constexpr int kThreads = kShape.threads();
  static constexpr int kStreamedTile = kStreamed * kTileStride<T, kWidth>;
  static constexpr int kWarpTile = 16 * kTileStride<T, kWidth>;
  static constexpr int N = kStreamed / 8;  // Fragments of a warp's scores.

  __device__ explicit GradientTiles(unsigned char* memory)
      : resident{reinterpret_cast<T*>(memory),
                 reinterpret_cast<T*>(memory) + kShape.warps * kWarpTile},
        streamed{resident[1] + kShape.warps * kWarpTile,
                 resident[1] + kShape.warps * kWarpTile + 2 * kStreamedTile} {}
  __device__ void load_resident(const HeadRows<const T>& a, const HeadRows<const T>& b, int first,
                                bool aligned) const {
    load_tile<kRows, kWidth, kThreads>(resident[0], a, first, aligned);
    load_tile<kRows, kWidth, kThreads>(resident[1], b, first, aligned);
  }
  __device__ void load_streamed(const HeadRows<const T>& a, const HeadRows<const T>& b, int tile,
                                int buffer, bool aligned) const {
    const int at = buffer * kStreamedTile;
    load_tile<kStreamed, kWidth, kThreads>(streamed[0] + at, a, tile * kStreamed, aligned);
    load_tile<kStreamed, kWidth, kThreads>(streamed[1] + at, b, tile * kStreamed, aligned);
  }
  // This warp's 16 rows of a resident tile.
  __device__ T* warp_rows(int i) const { return resident[i] + threadIdx.x / 32 * kWarpTile; }

  T *resident[2], *streamed[2];
};

template <typename T>
__device__ HeadRows<T> query_rows(const AttentionParameters& p, int batch, int head,
                                  std::type_identity_t<T>* tensor) {
  const int64_t stride = static_cast<int64_t>(p.heads) * p.head_dim;
  return {tensor + batch * p.queries * stride + static_cast<int64_t>(head) * p.head_dim, stride,
          p.queries, p.head_dim, 1};
}

// Products q·k in `scores` and cotangent·value in `dscores` become probabilities and dscores.
// lse(n, e) is in base 2.
template <int N, typename Lse, typename Delta, typename Hide>
__device__ void differentiate(const AttentionParameters& p, float (&scores)[N][4],
                              float (&dscores)[N][4], Lse lse, Delta delta, Hide hide) {
  if (p.cap > 0.0f) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float ratio = tanh_of(scores[n][e] * p.tanh_factor);
        dscores[n][e] = (dscores[n][e] - delta(n, e)) * fmaf(-ratio, ratio, 1.0f);
        scores[n][e] = exp2_of(fmaf(p.cap, ratio, -lse(n, e)));
      }
    }
  } else {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        dscores[n][e] -= delta(n, e);
        scores[n][e] = exp2_of(fmaf(p.factor, scores[n][e], -lse(n, e)));
      }
    }
  }
  hide(scores);
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) dscores[n][e] *= scores[n][e];
}

// A block of keys of one key head.
struct KeyItem {
  int batch, kv_head, first_row;
  int first_column;  // Column of dk and dv.
};

template <typename T, int kWidth>
__device__ KeyItem key_item_of(const AttentionParameters& p) {
  constexpr int kRows = GradientTiles<T, kWidth>::kRows;
  constexpr int kParts = kWidth / gradient_columns(kWidth);
  int rest = static_cast<int>(blockIdx.x);
  const int tiles = (p.keys + kRows - 1) / kRows;
  KeyItem item;
  item.first_column = rest % kParts * gradient_columns(kWidth), rest /= kParts;
  item.first_row = rest % tiles * kRows, rest /= tiles;
  item.kv_head = rest % p.kv_heads;
  item.batch = rest / p.kv_heads;
  return item;
}

// The two keys of a thread: which queries see them.
__device__ Mask key_mask(const AttentionParameters& p, const KeyItem& item, int row) {
  Mask mask;
  const int64_t first_query = static_cast<int64_t>(item.batch) * p.queries;
  mask.column_segments = p.segments == nullptr ? nullptr : p.segments + first_query;
  mask.columns = p.queries;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int key = min(row + 8 * h, p.keys - 1);
    mask.low[h] = p.causal ? key - p.first_query : 0;
    mask.high[h] = min(p.queries, key + p.window - p.first_query);
    mask.segment[h] =
        p.segments == nullptr ? 0 : p.key_segments[static_cast<int64_t>(item.batch) * p.keys + key];
  }
  return mask;
}

// One tile of queries of one head: `buffer` of the streamed tiles.
template <typename T, int kWidth, int M>
__device__ void add_queries(const AttentionParameters& p, const KeyItem& item,
                            const GradientTiles<T, kWidth>& tiles, const Mask& mask, int head,
                            int tile, int buffer, bool masked, float (&dk)[M][4],
                            float (&dv)[M][4]) {
  using Tiles = GradientTiles<T, kWidth>;
  const T* const query = tiles.streamed[0] + buffer * Tiles::kStreamedTile;
  const T* const cotangent = tiles.streamed[1] + buffer * Tiles::kStreamedTile;
  const int first = tile * Tiles::kStreamed;
  float scores[Tiles::N][4] = {}, dscores[Tiles::N][4] = {};
  add_products<kWidth>(scores, tiles.warp_rows(0), query);
  add_products<kWidth>(dscores, tiles.warp_rows(1), cotangent);
  // lse and delta are loaded where they are used: all registers are taken.
  const int64_t head_begin = (static_cast<int64_t>(item.batch) * p.heads + head) * p.queries;
  const auto query_of = [&](int n, int e) {
    const int column = first + 8 * n + static_cast<int>(threadIdx.x) % 4 * 2 + e % 2;
    return head_begin + min(column, p.queries - 1);
  };
  differentiate(
      p, scores, dscores, [&](int n, int e) { return p.saved_lse[query_of(n, e)] * kLog2E; },
      [&](int n, int e) { return p.delta[query_of(n, e)]; },
      [&](auto& x) {
        if (masked) mask.hide(x, first, 0.0f);
      });
  add_weighted<kWidth>(dv, scores, cotangent + item.first_column);
  add_weighted<kWidth>(dk, dscores, query + item.first_column);
}

// Streams the query heads of the group one after another, so their sums have a fixed order.
template <typename T, int kWidth, int M>
__device__ void sum_over_queries(const AttentionParameters& p, const KeyItem& item,
                                 const GradientTiles<T, kWidth>& tiles, float (&dk)[M][4],
                                 float (&dv)[M][4]) {
  using Tiles = GradientTiles<T, kWidth>;
  constexpr int kQueries = Tiles::kStreamed;
  const int group = p.heads / p.kv_heads;
  const int tile_count = (p.queries + kQueries - 1) / kQueries;
  const SegmentRange segments = segments_of(p.key_bounds, p.keys, p.bounds, p.queries, item.batch,
                                            item.first_row, Tiles::kRows);
  // These keys are at the positions of the queries from here on; the last is seen up to end_query.
  const int first_position = item.first_row - p.first_query;
  const int end_query = max(0, min(p.queries, first_position + Tiles::kRows - 1 + p.window));
  const int end_tile = (end_query + kQueries - 1) / kQueries;
  const int first = segments.template next<kQueries>(
      p.causal ? min(max(0, first_position) / kQueries, end_tile) : 0, end_tile);
  // Items: a tile of one head of the group. None if no query sees these keys.
  const int end = first < end_tile ? group * tile_count : 0;
  const int warp_row = item.first_row + 16 * static_cast<int>(threadIdx.x / 32);
  const Mask mask = key_mask(p, item, warp_row + static_cast<int>(threadIdx.x) % 32 / 4);
  const auto load = [&](int i, int buffer) {
    const int head = item.kv_head * group + i / tile_count;
    tiles.load_streamed(
        query_rows<const T>(p, item.batch, head, static_cast<const T*>(p.query)),
        query_rows<const T>(p, item.batch, head, static_cast<const T*>(p.cotangent)),
        i % tile_count, buffer, p.aligned);
  };
  const auto next = [&](int i) {
    const int member = i / tile_count;
    const int tile = segments.template next<kQueries>(i % tile_count + 1, end_tile);
    return tile < end_tile ? member * tile_count + tile : (member + 1) * tile_count + first;
  };
  for_each_buffered(first, end, next, load, [&](int i, int buffer) {
    const int head = item.kv_head * group + i / tile_count, tile = i % tile_count;
    const int first_query = tile * kQueries, end_query = first_query + kQueries;
    const int position = warp_row - p.first_query;
    if (warp_row >= p.keys || (p.causal && end_query <= position)) return;
    if (first_query >= position + 15 + p.window) return;
    const bool masked = (p.causal && first_query < position + 15) || end_query > p.queries ||
                        end_query > position + p.window || !segments.template one<kQueries>(tile);
    add_queries(p, item, tiles, mask, head, tile, buffer, masked, dk, dv);
  });
}

template <typename T, int kWidth>
__device__ void key_gradient(const AttentionParameters& p) {
  using Tiles = GradientTiles<T, kWidth>;
  constexpr int M = gradient_columns(kWidth) / 8;
  extern __shared__ __align__(16) unsigned char memory[];
  const Tiles tiles(memory);
  const KeyItem item = key_item_of<T, kWidth>(p);
  tiles.load_resident(
      key_rows<const T>(p, item.batch, item.kv_head, static_cast<const T*>(p.key)),
      key_rows<const T>(p, item.batch, item.kv_head, static_cast<const T*>(p.value)),
      item.first_row, p.aligned);
  float dk[M][4] = {}, dv[M][4] = {};
  sum_over_queries(p, item, tiles, dk, dv);
  const int warp_row = item.first_row + 16 * static_cast<int>(threadIdx.x / 32);
  store_rows<kWidth>(key_rows<T>(p, item.batch, item.kv_head, static_cast<T*>(p.dk)), warp_row,
                     item.first_column, dk, {p.scale, p.scale}, tiles.warp_rows(0), p.aligned);
  store_rows<kWidth>(key_rows<T>(p, item.batch, item.kv_head, static_cast<T*>(p.dv)), warp_row,
                     item.first_column, dv, {1.0f, 1.0f}, tiles.warp_rows(1), p.aligned);
}

// A block of queries of one head.
struct QueryItem {
  int batch, head, first_row;
};

// Blocks with most keys first.
__device__ QueryItem query_item_of(const AttentionParameters& p, int tile_rows) {
  int rest = static_cast<int>(blockIdx.x);
  const int tiles = (p.queries + tile_rows - 1) / tile_rows;
  QueryItem item;
  item.first_row = (tiles - 1 - rest % tiles) * tile_rows, rest /= tiles;
  item.head = rest % p.heads;
  item.batch = rest / p.heads;
  return item;
}

// The two queries of a thread.
struct QueryRows {
  __device__ QueryRows(const AttentionParameters& p, const QueryItem& item, int row) {
    const int64_t batch = item.batch;
    mask.column_segments = p.segments == nullptr ? nullptr : p.key_segments + batch * p.keys;
    mask.columns = p.keys;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int query = min(row + 8 * h, p.queries - 1);
      const int64_t at = (batch * p.heads + item.head) * p.queries + query;
      lse[h] = p.saved_lse[at] * kLog2E;
      delta[h] = p.delta[at];
      mask.end[h] = p.causal ? p.first_query + query + 1 : kNoWindow;
      mask.segment[h] = p.segments == nullptr ? 0 : p.segments[batch * p.queries + query];
    }
  }
  RowMask mask;
  float lse[2], delta[2];
};

template <typename T, int kWidth, int M>
__device__ void sum_over_keys(const AttentionParameters& p, const QueryItem& item,
                              const GradientTiles<T, kWidth>& tiles, float (&dq)[M][4]) {
  using Tiles = GradientTiles<T, kWidth>;
  constexpr int kKeys = Tiles::kStreamed;
  const int warp_row = item.first_row + 16 * static_cast<int>(threadIdx.x / 32);
  const int end_row = min(item.first_row + Tiles::kRows, p.queries);
  const int visible = p.causal ? min(p.keys, p.first_query + end_row) : p.keys;
  const int end = (visible + kKeys - 1) / kKeys;
  const int begin = max(0, p.first_query + item.first_row + 1 - p.window) / kKeys;
  const QueryRows rows(p, item, warp_row + static_cast<int>(threadIdx.x) % 32 / 4);
  const SegmentRange segments = segments_of(p.bounds, p.queries, p.key_bounds, p.keys, item.batch,
                                            item.first_row, Tiles::kRows);
  const int kv_head = item.head / (p.heads / p.kv_heads);
  const auto keys = key_rows<const T>(p, item.batch, kv_head, static_cast<const T*>(p.key));
  const auto values = key_rows<const T>(p, item.batch, kv_head, static_cast<const T*>(p.value));
  for_each_buffered(
      segments.template next<kKeys>(min(begin, end), end), end,
      [&](int tile) { return segments.template next<kKeys>(tile + 1, end); },
      [&](int tile, int buffer) { tiles.load_streamed(keys, values, tile, buffer, p.aligned); },
      [&](int tile, int buffer) {
        const int first = tile * kKeys, end_key = first + kKeys;
        const int position = p.first_query + warp_row;
        if (warp_row >= p.queries || (p.causal && first > position + 15)) return;
        if (end_key <= position + 1 - p.window) return;
        const T* const key = tiles.streamed[0] + buffer * Tiles::kStreamedTile;
        const T* const value = tiles.streamed[1] + buffer * Tiles::kStreamedTile;
        float scores[Tiles::N][4] = {}, dscores[Tiles::N][4] = {};
        add_products<kWidth>(scores, tiles.warp_rows(0), key);
        add_products<kWidth>(dscores, tiles.warp_rows(1), value);
        const bool masked = (p.causal && end_key > position + 1) || end_key > p.keys ||
                            first < position + 16 - p.window || !segments.template one<kKeys>(tile);
        differentiate(
            p, scores, dscores, [&](int, int e) { return rows.lse[e / 2]; },
            [&](int, int e) { return rows.delta[e / 2]; },
            [&](auto& x) {
              if (masked) rows.mask.hide(p, x, first, 0.0f);
            });
        add_weighted<kWidth>(dq, dscores, key);
      });
}

template <typename T, int kWidth>
__device__ void query_gradient(const AttentionParameters& p) {
  using Tiles = GradientTiles<T, kWidth>;
  extern __shared__ __align__(16) unsigned char memory[];
  const Tiles tiles(memory);
  const QueryItem item = query_item_of(p, Tiles::kRows);
  tiles.load_resident(
      query_rows<const T>(p, item.batch, item.head, static_cast<const T*>(p.query)),
      query_rows<const T>(p, item.batch, item.head, static_cast<const T*>(p.cotangent)),
      item.first_row, p.aligned);
  float dq[kWidth / 8][4] = {};
  sum_over_keys(p, item, tiles, dq);
  const int warp_row = item.first_row + 16 * static_cast<int>(threadIdx.x / 32);
  store_rows<kWidth>(query_rows<T>(p, item.batch, item.head, static_cast<T*>(p.dq)), warp_row, 0,
                     dq, {p.scale, p.scale}, tiles.warp_rows(0), p.aligned);
}

// A warp per row, 4 or 8 bytes read per element: cotangent and out.
template <typename T>
__device__ void sum_delta(const AttentionDeltaParameters& p) {
  const int64_t row = thread_number() / 32;
  if (row >= p.rows) return;
  const int lane = threadIdx.x % 32;
  const T* const out = static_cast<const T*>(p.out) + row * p.head_dim;
  const T* const cotangent = static_cast<const T*>(p.cotangent) + row * p.head_dim;
  float sum = 0.0f;
  if (p.aligned) {
    for (int i = lane * kVector<T>; i < p.head_dim; i += 32 * kVector<T>) {
      float a[kVector<T>], b[kVector<T>];
      load_vector(out + i, a);
      load_vector(cotangent + i, b);
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) sum = fmaf(a[j], b[j], sum);
    }
  } else {
    for (int i = lane; i < p.head_dim; i += 32)
      sum = fmaf(to_float(out[i]), to_float(cotangent[i]), sum);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  // Rows are ["batch queries heads"], delta is ["batch heads queries"].
  const int64_t head = row % p.heads, query = row / p.heads % p.queries;
  const int64_t batch = row / p.heads / p.queries;
  if (lane == 0) p.delta[(batch * p.heads + head) * p.queries + query] = sum;
}

}  // namespace

#define TESSERA_ATTENTION_GRADIENT(T, dtype, width)                                           \
  extern "C" __global__ void __launch_bounds__(gradient_tiles(sizeof(T), width).threads(), 1) \
      attention_grad_keys_##dtype##_##width(const AttentionParameters p) {                    \
    key_gradient<T, width>(p);                                                                \
  }                                                                                           \
  extern "C" __global__ void __launch_bounds__(gradient_tiles(sizeof(T), width).threads(), 1) \
      attention_grad_queries_##dtype##_##width(const AttentionParameters p) {                 \
    query_gradient<T, width>(p);                                                              \
  }
TESSERA_ATTENTION_VARIANTS(TESSERA_ATTENTION_GRADIENT)
#undef TESSERA_ATTENTION_GRADIENT

extern "C" __global__ void __launch_bounds__(128)
    attention_delta_bf16(const AttentionDeltaParameters p) {
  sum_delta<bf16>(p);
}
extern "C" __global__ void __launch_bounds__(128)
    attention_delta_f32(const AttentionDeltaParameters p) {
  sum_delta<float>(p);
}

}  // namespace tessera::cuda
