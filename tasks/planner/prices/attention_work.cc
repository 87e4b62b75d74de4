// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/prices/attention_work.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/dtype.h"
#include "core/base/multiples.h"
#include "core/devices/attention_tiles.h"
#include "core/ops/attention.h"

namespace tessera {
namespace {

using attention_tiles::AttentionKernel;
using attention_tiles::TileShape;

constexpr int64_t kLanes = 32, kWarpRows = 16, kFloatBytes = 4;
constexpr int64_t kReservedShared = 1 << 10;  // Bytes per block.

// Adds up one kernel's work. A warp multiplies tiles of 16 rows.
class Counter {
 public:
  Counter(const AttentionShape& shape, AttentionKernel kernel, int64_t shared_capacity)
      : shape_(shape),
        bytes_(shape.element_bytes),
        width_(attention_tiles::width_of(static_cast<int>(shape.head_dim))),
        tiles_(tiles_of(kernel)) {
    const auto bytes = static_cast<int>(bytes_), width = static_cast<int>(width_);
    const bool forward = kernel == AttentionKernel::kForward;
    const int64_t block =
        attention_tiles::shared_bytes(bytes, width, tiles_, forward ? 1 : 2) + kReservedShared;
    constexpr const char* kNames[] = {"attention", "attention_grad_keys", "attention_grad_queries"};
    work.kernel = fmt::format("{}_{}_{}", kNames[static_cast<size_t>(kernel)],
                              bytes_ == 2 ? "bf16" : "f32", width_);
    work.resident_blocks =
        std::min<int64_t>(attention_tiles::blocks_by_registers(kernel, bytes, width),
                          std::max<int64_t>(1, shared_capacity / block));
  }

  int64_t width() const { return width_; }
  int64_t rows() const { return tiles_.rows(); }
  int64_t streamed() const { return tiles_.streamed; }
  int64_t warps() const { return tiles_.warps; }

  // A tile of so many rows, of which `valid` exist: cp.async fills the others with zeros.
  void load_tiles(int64_t tiles, int64_t rows, int64_t valid) {
    work.global_bytes += valid * shape_.head_dim * bytes_;
    work.shared_bytes += tiles * rows * width_ * bytes_;
  }
  void pass_barriers(int64_t tiles) { work.barriers += 2 * tiles + 1; }
  // `products` of a warp's rows with the rows of a tile, along the head.
  void multiply_rows(int64_t products) {
    const int64_t columns = tiles_.streamed;
    // bf16: ldmatrix reads 16×16 elements of the left factor and of two column groups of the right
    // one. f32: each lane reads 16-byte vectors of two rows and of columns / 4.
    const int64_t read = bytes_ == 2 ? width_ / 16 * (1 + columns / 16) * 512
                                     : width_ / 4 * (2 + columns / 4) * 16 * kLanes;
    work.shared_bytes += products * read;
    work.multiply_adds += products * kWarpRows * columns * width_;
  }
  // `products` of a warp's weights, from registers, with `columns` columns of a tile's rows.
  void multiply_weights(int64_t products, int64_t columns) {
    const int64_t rows = tiles_.streamed;
    const int64_t read = bytes_ == 2 ? rows / 16 * (columns / 16) * 512
                                     : rows * (columns / 8) * 2 * kFloatBytes * kLanes;
    work.shared_bytes += products * read;
    work.multiply_adds += products * kWarpRows * rows * columns;
  }
  void add_scores(int64_t tiles) {
    const int64_t scores = tiles * kWarpRows * tiles_.streamed;
    work.scores += scores;
    work.exponentials += (shape_.has_logit_cap ? 3 : 1) * scores;
  }
  // A warp's result of `columns` columns from the first on, through shared memory.
  void store_rows(int64_t first_row, int64_t last_row, int64_t first_column, int64_t columns) {
    const int64_t rows = std::clamp<int64_t>(last_row - first_row, 0, kWarpRows);
    const int64_t stored =
        rows * std::clamp<int64_t>(shape_.head_dim - first_column, 0, columns) * bytes_;
    work.shared_bytes += kWarpRows * columns * bytes_ + stored;
    work.global_bytes += stored;
  }
  AttentionWork times(int64_t repeats) {
    for (int64_t* const each :
         {&work.blocks, &work.global_bytes, &work.shared_bytes, &work.multiply_adds, &work.scores,
          &work.exponentials, &work.barriers})
      *each *= repeats;
    return work;
  }

  AttentionWork work;

 private:
  TileShape tiles_of(AttentionKernel kernel) const {
    const auto bytes = static_cast<int>(bytes_), width = static_cast<int>(width_);
    return kernel == AttentionKernel::kForward ? attention_tiles::forward_tiles(bytes, width)
                                               : attention_tiles::gradient_tiles(bytes, width);
  }

  const AttentionShape& shape_;
  int64_t bytes_, width_;
  TileShape tiles_;
};

// Rows, or tiles of rows, [begin, end) that a kernel streams.
struct Streamed {
  int64_t begin = 0, end = 0;

  int64_t count() const { return std::max<int64_t>(0, end - begin); }
  Streamed tiles(int64_t rows) const { return {begin / rows, ceil_div(end, rows)}; }
  // Rows of these tiles of which `all` exist.
  int64_t rows(int64_t tile_rows, int64_t all) const {
    return count() == 0 ? 0 : std::min(end * tile_rows, all) - begin * tile_rows;
  }
  Streamed within(const Streamed& other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
};

// The keys that queries [first, last] see by position, and the queries that see such keys.
Streamed keys_seen(const AttentionShape& shape, int64_t first, int64_t last) {
  if (!shape.causal) return {0, shape.keys};
  const int64_t before = shape.window == 0 ? 0 : first + shape.first_query + 1 - shape.window;
  return {std::max<int64_t>(0, before), std::min(shape.keys, last + shape.first_query + 1)};
}
Streamed queries_seeing(const AttentionShape& shape, int64_t first, int64_t last) {
  const int64_t begin = shape.causal ? std::max<int64_t>(0, first - shape.first_query) : 0;
  if (shape.window == 0) return {begin, shape.queries};
  return {begin, std::clamp<int64_t>(last + shape.window - shape.first_query, 0, shape.queries)};
}

// A block owns queries and streams the keys that they may see.
AttentionWork work_of_queries(const AttentionShape& shape, bool gradient, int64_t shared_capacity) {
  Counter count(shape, gradient ? AttentionKernel::kQueryGradient : AttentionKernel::kForward,
                shared_capacity);
  const int64_t streamed = count.streamed();
  for (int64_t first = 0; first < shape.queries; first += count.rows(), ++count.work.blocks) {
    const int64_t rows = std::min(count.rows(), shape.queries - first);
    count.load_tiles(gradient ? 2 : 1, count.rows(), (gradient ? 2 : 1) * rows);
    const Streamed keys = keys_seen(shape, first, first + rows - 1);
    const bool skips_all = !gradient && keys.count() == 0;
    const Streamed tiles = skips_all ? Streamed() : keys.tiles(streamed);
    count.load_tiles(2 * tiles.count(), streamed, 2 * tiles.rows(streamed, shape.keys));
    count.pass_barriers(tiles.count());
    // lse, and in the gradient delta, of every lane's two rows.
    count.work.global_bytes += kFloatBytes * (gradient ? 4 * kLanes * count.warps() : rows);
    for (int64_t row = first; row < first + count.rows(); row += kWarpRows) {
      count.store_rows(row, shape.queries, 0, count.width());
      if (row >= shape.queries) continue;
      const int64_t last = std::min(row + kWarpRows, shape.queries) - 1;
      const int64_t used = keys_seen(shape, row, last).tiles(streamed).within(tiles).count();
      count.multiply_rows((gradient ? 2 : 1) * used);
      count.multiply_weights(used, count.width());
      count.add_scores(used);
    }
  }
  return count.times(shape.batch * shape.heads);
}

// A block owns keys, and columns of dk and dv, and streams the queries that see them.
AttentionWork work_of_keys(const AttentionShape& shape, int64_t shared_capacity) {
  Counter count(shape, AttentionKernel::kKeyGradient, shared_capacity);
  const int64_t columns = attention_tiles::gradient_columns(static_cast<int>(count.width()));
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t streamed = count.streamed();
  const auto tiles_of = [&](int64_t first, int64_t rows) {
    return queries_seeing(shape, first, first + rows - 1).tiles(streamed);
  };
  for (int64_t column = 0; column < count.width(); column += columns) {
    for (int64_t first = 0; first < shape.keys; first += count.rows(), ++count.work.blocks) {
      const int64_t rows = std::min(count.rows(), shape.keys - first);
      count.load_tiles(2, count.rows(), 2 * rows);
      const Streamed tiles = tiles_of(first, count.rows());
      count.load_tiles(2 * group * tiles.count(), streamed,
                       2 * group * tiles.rows(streamed, shape.queries));
      count.pass_barriers(group * tiles.count());
      for (int64_t row = first; row < first + count.rows(); row += kWarpRows) {
        for (int i = 0; i < 2; ++i) count.store_rows(row, shape.keys, column, columns);
        if (row >= shape.keys) continue;
        const int64_t used = group * tiles_of(row, kWarpRows).within(tiles).count();
        count.multiply_rows(2 * used);
        count.multiply_weights(2 * used, columns);
        count.add_scores(used);
        // Every lane loads lse and delta of the two queries of each of its pairs.
        count.work.global_bytes += used * kLanes * (streamed / 8) * 2 * 2 * kFloatBytes;
      }
    }
  }
  return count.times(shape.batch * shape.kv_heads);
}

// delta = sum(cotangent·out) of each row.
AttentionWork work_of_delta(const AttentionShape& shape) {
  constexpr int64_t kWarps = 4;
  const int64_t rows = shape.batch * shape.queries * shape.heads;
  return {.kernel = shape.element_bytes == 2 ? "attention_delta_bf16" : "attention_delta_f32",
          .blocks = ceil_div(rows, kWarps),
          .global_bytes = rows * (2 * shape.head_dim * shape.element_bytes + kFloatBytes)};
}

}  // namespace

AttentionShape attention_shape(const Graph& graph, const Node& node) {
  const Type &q = graph.type(node.inputs[0]), &k = graph.type(node.inputs[1]);
  return {.batch = q.axes[0].size,
          .queries = q.axes[1].size,
          .keys = k.axes[1].size,
          .heads = q.axes[2].size,
          .kv_heads = k.axes[2].size,
          .head_dim = q.axes[3].size,
          .element_bytes = dtype_bytes(q.dtype),
          .causal = node.attributes.get(key::kCausal),
          .has_logit_cap = node.attributes.get(key::kLogitCap) > 0.0,
          .window = attention_window(node.attributes),
          .first_query = first_query(node.attributes)};
}

std::vector<AttentionWork> attention_work(const AttentionShape& shape, bool gradient,
                                          int64_t shared_capacity) {
  if (attention_tiles::width_of(static_cast<int>(shape.head_dim)) == 0) return {};
  if (!gradient) return {work_of_queries(shape, false, shared_capacity)};
  return {work_of_delta(shape), work_of_keys(shape, shared_capacity),
          work_of_queries(shape, true, shared_capacity)};
}

}  // namespace tessera
