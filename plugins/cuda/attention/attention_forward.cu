// SPDX-License-Identifier: Apache-2.0
// The forward pass of attention, FlashAttention-2 (Dao, 2023): a block owns 64 queries of one head
// and streams the keys and values that they may see, keeping the running maximum and sum of each
// row (online softmax: Milakov and Gimelshein, 2018). Reads q once, and keys and values once per 64
// queries, mostly from L2. With several runs of keys (decoding; Flash-Decoding: Dao et al., 2023),
// a block sees one run, and cached_attention_join combines the runs in order.
#include "plugins/cuda/attention/scores.cuh"

namespace tessera::cuda {
namespace {

// What a block computes.
struct Item {
  int batch, head, first_row, run;  // `head`: of p.heads / p.pack.
};

// Neighbouring blocks work on one head, so that its keys stay in L2; rows that see most keys come
// first.
__device__ Item item_of(const AttentionParameters& p, int tile_rows) {
  int rest = static_cast<int>(blockIdx.x);
  const int tiles = (p.queries * p.pack + tile_rows - 1) / tile_rows;
  Item item;
  item.run = rest % p.runs, rest /= p.runs;
  item.first_row = (tiles - 1 - rest % tiles) * tile_rows, rest /= tiles;
  item.head = rest % (p.heads / p.pack);
  item.batch = rest / (p.heads / p.pack);
  return item;
}

template <typename T>
__device__ HeadRows<T> query_rows(const AttentionParameters& p, const Item& item, T* tensor) {
  const int64_t stride = static_cast<int64_t>(p.heads) * p.head_dim;
  return {tensor + item.batch * p.queries * stride +
              static_cast<int64_t>(item.head) * p.pack * p.head_dim,
          stride, p.queries * p.pack, p.head_dim, p.pack};
}

// A row's running maximum and sum; the sum over this thread's columns alone, until the end.
struct Running {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};
};

// Products q·k become scores, up to the factor that is returned: it is greater than 0, so maxima
// can be taken before, and it is then part of the FMA before the exponential.
template <int N>
__device__ float scale_scores(const AttentionParameters& p, float (&scores)[N][4]) {
  if (p.cap == 0.0f && p.factor > 0.0f) return p.factor;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      scores[n][e] =
          p.cap > 0.0f ? p.cap * tanh_of(scores[n][e] * p.tanh_factor) : p.factor * scores[n][e];
  return 1.0f;
}

// Scores / factor become 2^(score - maximum); older sums are rescaled to the new maximum.
template <int M, int N>
__device__ void softmax_step(float factor, float (&scores)[N][4], float (&sums)[M][4],
                             Running& running) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float maximum = scores[0][2 * h];
#pragma unroll
    for (int n = 0; n < N; ++n)
      maximum = fmaxf(maximum, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 1));
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 2));
    maximum = fmaxf(maximum * factor, running.maximum[h]);
    // A row that has seen no key yet: -inf - -inf would be NaN.
    const float center = maximum == -INFINITY ? 0.0f : maximum;
    const float rescale = exp2_of(running.maximum[h] - center);
    float sum = running.sum[h] * rescale;
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        scores[n][2 * h + j] = exp2_of(fmaf(scores[n][2 * h + j], factor, -center));
        sum += scores[n][2 * h + j];
      }
    }
#pragma unroll
    for (int m = 0; m < M; ++m) sums[m][2 * h] *= rescale, sums[m][2 * h + 1] *= rescale;
    running.maximum[h] = maximum;
    running.sum[h] = sum;
  }
}

// The end of the keys that row `row` may see by position, were there as many. It grows with the
// row.
__device__ int end_of(const AttentionParameters& p, int start, int row) {
  return p.causal ? start + row / p.pack + 1 : kNoWindow;
}

// The rows of one thread: what they may see.
__device__ RowMask mask_of(const AttentionParameters& p, const Item& item, int row, int start) {
  RowMask mask;
  const int rows = p.queries * p.pack;
  mask.column_segments =
      p.segments == nullptr ? nullptr : p.key_segments + static_cast<int64_t>(item.batch) * p.keys;
  mask.columns = p.keys;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = min(row + 8 * h, rows - 1) / p.pack;
    mask.end[h] = end_of(p, start, min(row + 8 * h, rows - 1));
    mask.segment[h] = p.segments == nullptr
                          ? 0
                          : p.segments[static_cast<int64_t>(item.batch) * p.queries + query];
  }
  return mask;
}

// A run's part of the result, for cached_attention_join.
template <int kWidth, int M>
__device__ void store_partial(const AttentionParameters& p, const Item& item, int row,
                              const float (&sums)[M][4], const Running& running) {
  const int rows = p.queries * p.pack, lane = threadIdx.x % 32;
  const int64_t first =
      ((static_cast<int64_t>(item.batch) * p.kv_heads + item.head) * p.runs + item.run) * rows;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row + 8 * h >= rows) continue;
    const int64_t at = first + row + 8 * h;
    float* const to = p.partial + at * kWidth + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < M; ++m) store_pair(to + 8 * m, sums[m][2 * h], sums[m][2 * h + 1]);
    if (lane % 4 == 0) p.statistics[at] = {running.maximum[h], running.sum[h]};
  }
}

__device__ float* lse_of(const AttentionParameters& p, const Item& item, int row) {
  const int head = item.head * p.pack + row % p.pack;
  return p.lse + (static_cast<int64_t>(item.batch) * p.heads + head) * p.queries + row / p.pack;
}

template <typename T, int kWidth, int M>
__device__ void store_result(const AttentionParameters& p, const Item& item, int warp_row,
                             const float (&sums)[M][4], const Running& running, T* staging) {
  const int lane = threadIdx.x % 32, rows = p.queries * p.pack;
  float inverse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool empty = running.sum[h] == 0.0f;
    inverse[h] = empty ? 0.0f : 1.0f / running.sum[h];
    const int row = warp_row + lane / 4 + 8 * h;
    if (row < rows && lane % 4 == 0)
      *lse_of(p, item, row) =
          empty ? kEmptyLse : (running.maximum[h] + log2f(running.sum[h])) * kLn2;
  }
  store_rows<kWidth>(query_rows(p, item, static_cast<T*>(p.out)), warp_row, 0, sums, inverse,
                     staging, p.aligned);
}

// The tiles of a block in shared memory.
template <typename T, int kWidth>
struct ForwardTiles {
  static constexpr TileShape kShape = forward_tiles(sizeof(T), kWidth);
  static constexpr int kRows = kShape.rows(), kKeys = kShape.streamed;
  static constexpr int kKeyTile = kKeys * kTileStride<T, kWidth>;
  static constexpr int kWarpTile = 16 * kTileStride<T, kWidth>;

  __device__ explicit ForwardTiles(unsigned char* memory)
      : query(reinterpret_cast<T*>(memory)),
        key(query + kShape.warps * kWarpTile),
        value(key + 2 * kKeyTile) {}
  T *query, *key, *value;  // Keys and values: two of each.
};

// The keys that row `row` may see by position begin and end here.
__device__ int first_visible_key(const AttentionParameters& p, int start, int row) {
  return max(0, end_of(p, start, row) - p.window);
}
__device__ int visible_keys(const AttentionParameters& p, int start, int row) {
  return min(p.keys, end_of(p, start, row));
}

// Adds the keys [begin, end) to `sums`.
template <typename T, int kWidth, int M>
__device__ void attend_to_keys(const AttentionParameters& p, const Item& item,
                               const ForwardTiles<T, kWidth>& tiles, int start, int begin, int end,
                               float (&sums)[M][4], Running& running) {
  using Tiles = ForwardTiles<T, kWidth>;
  constexpr int kKeys = Tiles::kKeys, kThreads = Tiles::kShape.threads();
  const int warp = threadIdx.x / 32, warp_row = item.first_row + 16 * warp;
  const int rows = p.queries * p.pack;
  const RowMask mask = mask_of(p, item, warp_row + threadIdx.x % 32 / 4, start);
  // Ends of the keys that the last row of this warp sees, and that the first one sees.
  const int last_end = warp_row < rows ? end_of(p, start, min(warp_row + 16, rows) - 1) : 0;
  const int first_end = end_of(p, start, warp_row);
  const SegmentRange segments = segments_of(p.bounds, p.queries, p.key_bounds, p.keys, item.batch,
                                            item.first_row, Tiles::kRows);
  const int kv_head = item.head / (p.heads / p.pack / p.kv_heads);
  const auto keys = key_rows<const T>(p, item.batch, kv_head, static_cast<const T*>(p.key));
  const auto values = key_rows<const T>(p, item.batch, kv_head, static_cast<const T*>(p.value));
  const int end_tile = end <= begin ? 0 : (end + kKeys - 1) / kKeys;
  for_each_buffered(
      segments.next<kKeys>(begin / kKeys, end_tile), end_tile,
      [&](int tile) { return segments.next<kKeys>(tile + 1, end_tile); },
      [&](int tile, int buffer) {
        const int at = buffer * Tiles::kKeyTile;
        load_tile<kKeys, kWidth, kThreads>(tiles.key + at, keys, tile * kKeys, p.aligned);
        load_tile<kKeys, kWidth, kThreads>(tiles.value + at, values, tile * kKeys, p.aligned);
      },
      [&](int tile, int buffer) {
        const int from = tile * kKeys, to = from + kKeys;
        if (from >= last_end || to <= first_end - p.window) return;
        float scores[kKeys / 8][4] = {};
        add_products<kWidth>(scores, tiles.query + warp * Tiles::kWarpTile,
                             tiles.key + buffer * Tiles::kKeyTile);
        const float factor = scale_scores(p, scores);
        if (to > min(p.keys, first_end) || from < last_end - p.window || !segments.one<kKeys>(tile))
          mask.hide(p, scores, from, -INFINITY);
        softmax_step(factor, scores, sums, running);
        add_weighted<kWidth>(sums, scores, tiles.value + buffer * Tiles::kKeyTile);
      });
}

template <typename T, int kWidth>
__device__ void attend(const AttentionParameters& p) {
  using Tiles = ForwardTiles<T, kWidth>;
  extern __shared__ __align__(16) unsigned char memory[];
  const Tiles tiles(memory);
  const Item item = item_of(p, Tiles::kRows);
  const int last_row = min(item.first_row + Tiles::kRows, p.queries * p.pack) - 1;
  const int start = p.starts == nullptr ? p.first_query : p.starts[item.batch];
  const int begin = max(item.run * p.run_keys, first_visible_key(p, start, item.first_row));
  const int end = min(visible_keys(p, start, last_row), (item.run + 1) * p.run_keys);
  if (p.runs > 1 && begin >= end) return;  // The join does not read this run.

  load_tile<Tiles::kRows, kWidth, Tiles::kShape.threads()>(
      tiles.query, query_rows(p, item, static_cast<const T*>(p.query)), item.first_row, p.aligned);
  float sums[kWidth / 8][4] = {};
  Running running;
  attend_to_keys(p, item, tiles, start, begin, end, sums, running);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    running.sum[h] += __shfl_xor_sync(0xffffffffu, running.sum[h], 1);
    running.sum[h] += __shfl_xor_sync(0xffffffffu, running.sum[h], 2);
  }
  const int warp = threadIdx.x / 32, warp_row = item.first_row + 16 * warp;
  if (p.runs > 1)
    store_partial<kWidth>(p, item, warp_row + threadIdx.x % 32 / 4, sums, running);
  else
    store_result<T, kWidth>(p, item, warp_row, sums, running,
                            tiles.query + warp * Tiles::kWarpTile);
}

// A warp combines the runs of one row, in order.
template <typename T>
__device__ void join(const AttentionParameters& p, int width) {
  const int rows = p.queries * p.pack, lane = threadIdx.x % 32;
  const int64_t number = thread_number() / 32;
  if (number >= static_cast<int64_t>(p.batch) * p.kv_heads * rows) return;
  const int row = static_cast<int>(number % rows);
  const int64_t head = number / rows;
  const int batch = static_cast<int>(head / p.kv_heads);
  // The runs that the kernel above has written.
  const int visible = min(p.keys, p.starts[batch] + (rows - 1) / p.pack + 1);
  const int first = first_visible_key(p, p.starts[batch], 0);
  const int runs = first >= visible ? 0 : (visible + p.run_keys - 1) / p.run_keys;
  const int first_run = first / p.run_keys;
  const RunStatistics* const statistics = p.statistics + head * p.runs * rows + row;
  const float* const partial = p.partial + (head * p.runs * rows + row) * width;

  float maximum = -INFINITY, sum = 0.0f;
  for (int run = first_run; run < runs; ++run)
    maximum = fmaxf(maximum, statistics[static_cast<int64_t>(run) * rows].maximum);
  const float center = maximum == -INFINITY ? 0.0f : maximum;
  for (int run = first_run; run < runs; ++run) {
    const RunStatistics each = statistics[static_cast<int64_t>(run) * rows];
    sum = fmaf(each.sum, exp2_of(each.maximum - center), sum);
  }
  const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
  const Item item{batch, static_cast<int>(head % p.kv_heads), 0, 0};
  if (lane == 0) *lse_of(p, item, row) = sum == 0.0f ? kEmptyLse : (center + log2f(sum)) * kLn2;
  T* const out = query_rows(p, item, static_cast<T*>(p.out)).row(row);
  for (int column = lane; column < p.head_dim; column += 32) {
    float total = 0.0f;
    for (int run = first_run; run < runs; ++run) {
      const int64_t at = static_cast<int64_t>(run) * rows;
      const float factor = exp2_of(statistics[at].maximum - center);
      total = fmaf(partial[at * width + column], factor, total);
    }
    out[column] = from_float<T>(total * inverse);
  }
}

}  // namespace

// One block a multiprocessor is enough (the 1 below): more would cost spilled registers.
#define TESSERA_ATTENTION(T, dtype, width)                                                   \
  extern "C" __global__ void __launch_bounds__(forward_tiles(sizeof(T), width).threads(), 1) \
      attention_##dtype##_##width(const AttentionParameters p) {                             \
    attend<T, width>(p);                                                                     \
  }
TESSERA_ATTENTION_VARIANTS(TESSERA_ATTENTION)
#undef TESSERA_ATTENTION

extern "C" __global__ void __launch_bounds__(128)
    cached_attention_join_bf16(const AttentionParameters p, int width) {
  join<bf16>(p, width);
}
extern "C" __global__ void __launch_bounds__(128)
    cached_attention_join_f32(const AttentionParameters p, int width) {
  join<float>(p, width);
}

// A warp per run of rows.
extern "C" __global__ void __launch_bounds__(128) segment_bounds(const SegmentBoundsParameters p) {
  const int64_t number = thread_number() / 32;
  if (number >= static_cast<int64_t>(p.batch) * p.runs) return;
  const int64_t batch = number / p.runs, run = number % p.runs;
  const int lane = threadIdx.x % 32;
  const int64_t row = min(run * kSegmentRun + lane, static_cast<int64_t>(p.rows) - 1);
  SegmentBounds bounds;
  bounds.low = bounds.high = p.segments[batch * p.rows + row];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    bounds.low = min(bounds.low, __shfl_xor_sync(0xffffffffu, bounds.low, distance));
    bounds.high = max(bounds.high, __shfl_xor_sync(0xffffffffu, bounds.high, distance));
  }
  if (lane == 0) p.bounds[number] = bounds;
}

}  // namespace tessera::cuda
