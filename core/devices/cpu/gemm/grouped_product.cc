// SPDX-License-Identifier: Apache-2.0
// The kernels of grouped_product and grouped_outer_product. Rows are ordered by their ids, and the
// rows of one id are multiplied together by the engine of einsum, some hundred at a time: they are
// copied to a tile first, and the results of a tile are copied to their places. The bits of a row
// depend only on it and its matrix, and those of an outer product only on the rows of its id in
// their order: not on the number of threads or the rows of other ids.
#include "core/ops/grouped_product.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "core/devices/cpu/gemm/gemm.h"
#include "core/devices/cpu/id_order.h"
#include "core/devices/cpu/registry.h"
#include "core/devices/iteration_space.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

constexpr int64_t kIds = 2;  // Index of the operand of ids, in both ops.

// The positions on a shard of the axis `experts`, and the rows of each.
class Groups {
 public:
  Groups(const Graph& graph, const Node& node, const Type& matrices)
      : ids_(graph.type(node.inputs[kIds]).elements()) {
    const int64_t first = origin_along(node.attributes, 0);
    values_ = {first, first + matrices.axes.front().size};
  }

  int64_t ids() const { return ids_; }
  int64_t count() const { return values_.size(); }
  bool contains(int32_t id) const { return values_.contains(id); }
  int64_t scratch_bytes() const { return aligned_bytes((count() + 1 + ids_) * 4); }

  // begins(scratch)[g] is the place of group g in order(scratch), and begins[count()] their end.
  void sort(const HostArgs& args) const {
    order_ids(input_as<int32_t>(args, kIds), ids_, values_, begins(args), order(args));
  }
  static int32_t* begins(const HostArgs& args) { return reinterpret_cast<int32_t*>(args.scratch); }
  int32_t* order(const HostArgs& args) const { return begins(args) + count() + 1; }

 private:
  int64_t ids_;
  Range values_;
};

// The row of an operand for each id; operands may lack axes of ids.
class RowsOfIds {
 public:
  RowsOfIds(const Graph& graph, const Node& node, size_t operand)
      : width_(graph.type(node.inputs[operand]).axes.back().size) {
    const Type& rows = graph.type(node.inputs[operand]);
    const std::vector<Axis>& ids = graph.type(node.inputs[kIds]).axes;
    const Strides own = strides_in(rows, rows.axes);
    Strides strides;
    for (const Axis& axis : ids)
      strides.push_back(rows.has(axis.name) ? own[static_cast<size_t>(rows.find(axis.name))] : 0);
    space_ = collapse(sizes_of(ids), {strides});
    bytes_ = dtype_bytes(rows.dtype);
  }

  int64_t width() const { return width_; }
  // Copies these columns of the rows of `count` ids.
  void copy(const std::byte* data, const int32_t* ids, int64_t count, Range columns,
            std::byte* to) const {
    const int64_t bytes = columns.size() * bytes_;
    for (int64_t i = 0; i < count; ++i, to += bytes)
      std::memcpy(to, data + (space_.offset(0, ids[i]) + columns.begin) * bytes_,
                  static_cast<size_t>(bytes));
  }

 private:
  int64_t width_ = 0, bytes_ = 0;
  IterationSpace space_;
};

// A copied tile of rows and a tile of results fit in the L2 cache, and a packed block of a matrix
// is used for enough rows that packing it takes a few percent of the time.
constexpr int64_t kTileRows = 240, kTileColumns = 512;
// With fewer rows for each thread, threads divide the columns of the matrices.
constexpr int64_t kFewRows = 16;

class GroupedProductKernel final : public HostKernel {
 public:
  GroupedProductKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : groups_(graph, node, graph.type(node.inputs[0])), rows_(graph, node, 1), pool_(pool) {
    const Type& weights = graph.type(node.inputs[0]);
    const Type& result = graph.type(node.outputs[0]);
    const int64_t k = rows_.width();
    columns_ = result.axes.back().size;
    const bool transposed = weights.axes.back().name == node.attributes.get(key::kContractedAxis);
    shape_ = {.k = k,
              .a = {k, false},
              .b = {transposed ? k : columns_, transposed},
              .input = vector_dtype(graph, node, 0),
              .output = result.dtype};
    bytes_ = dtype_bytes(shape_.input);
    path_ = gemm_path(shape_.input);
    tile_rows_ = std::clamp<int64_t>(groups_.ids(), 1, kTileRows);
    tile_columns_ = std::min(columns_, kTileColumns);
    for (const int64_t n : column_counts())
      for (int64_t m = 1; m <= tile_rows_; ++m)
        gemm_scratch_ = std::max(gemm_scratch_, aligned_bytes(gemm(m, n).scratch_bytes()));
  }

  int64_t scratch_bytes() const override {
    return groups_.scratch_bytes() + pool_.size() * thread_scratch();
  }

  void run(const HostArgs& args) override {
    groups_.sort(args);
    const int64_t rows = groups_.begins(args)[groups_.count()];
    const double operations = 2.0 * static_cast<double>(rows) * static_cast<double>(columns_) *
                              static_cast<double>(shape_.k);
    const int threads = operations < kLeastOperations ? 1 : pool_.size();
    const bool by_rows = rows >= kFewRows * threads;
    const auto work = [&](int thread) {
      if (thread >= threads) return;
      zero_others(args, part_of(groups_.ids(), thread, threads));
      multiply(args, by_rows ? part_of(rows, thread, threads) : Range{0, rows},
               by_rows ? Range{0, columns_} : part_of(columns_, thread, threads, kColumnGrain),
               args.scratch + groups_.scratch_bytes() + thread * thread_scratch());
    };
    threads == 1 ? work(0) : pool_.run(work);
  }

 private:
  Gemm gemm(int64_t rows, int64_t columns) const {
    GemmShape shape = shape_;
    shape.m = rows;
    shape.n = columns;
    shape.c_leading = columns;
    return {shape, path_};
  }
  // Returns the column counts of all tiles, whether threads divide rows or columns.
  std::set<int64_t> column_counts() const {
    std::set<int64_t> counts = {tile_columns_, columns_ % tile_columns_};
    for (int thread = 0; thread < pool_.size(); ++thread) {
      const int64_t own = part_of(columns_, thread, pool_.size(), kColumnGrain).size();
      counts.insert({std::min(own, tile_columns_), own % tile_columns_});
    }
    counts.erase(0);
    return counts;
  }
  int64_t thread_scratch() const { return copied_bytes() + result_bytes() + gemm_scratch_; }
  int64_t copied_bytes() const { return aligned_bytes(tile_rows_ * shape_.k * bytes_); }
  int64_t result_bytes() const { return aligned_bytes(tile_rows_ * tile_columns_ * bytes_); }

  // Writes zeros to the rows of ids that have no matrix.
  void zero_others(const HostArgs& args, Range ids) const {
    for (int64_t i = ids.begin; i < ids.end; ++i)
      if (!groups_.contains(input_as<int32_t>(args, kIds)[i]))
        std::memset(args.outputs[0] + i * columns_ * bytes_, 0,
                    static_cast<size_t>(columns_ * bytes_));
  }

  // Computes the results of the ordered rows [rows.begin, rows.end) in these columns.
  void multiply(const HostArgs& args, Range rows, Range columns, std::byte* scratch) const {
    const int32_t* const begins = groups_.begins(args);
    for (int64_t group = 0; group < groups_.count(); ++group) {
      const int64_t begin = std::max<int64_t>(rows.begin, begins[group]);
      const int64_t end = std::min<int64_t>(rows.end, begins[group + 1]);
      if (begin >= end) continue;
      const int64_t tile = even_part(end - begin, tile_rows_, 1);
      for (int64_t row = begin; row < end; row += tile)
        multiply_tile(args, group, {row, std::min(row + tile, end)}, columns, scratch);
    }
  }

  void multiply_tile(const HostArgs& args, int64_t group, Range rows, Range columns,
                     std::byte* scratch) const {
    std::byte* const copied = scratch;
    std::byte* const result = copied + copied_bytes();
    const int32_t* const ids = groups_.order(args) + rows.begin;
    rows_.copy(args.inputs[1], ids, rows.size(), {0, shape_.k}, copied);
    const std::byte* const matrix = args.inputs[0] + group * shape_.k * columns_ * bytes_;
    const int64_t stride = shape_.b.transposed ? shape_.k : 1;
    for (int64_t column = columns.begin; column < columns.end; column += tile_columns_) {
      const int64_t count = std::min(tile_columns_, columns.end - column);
      gemm(rows.size(), count)
          .run(copied, matrix + column * stride * bytes_, result, result + result_bytes());
      for (int64_t i = 0; i < rows.size(); ++i)
        std::memcpy(args.outputs[0] + (ids[i] * columns_ + column) * bytes_,
                    result + i * count * bytes_, static_cast<size_t>(count * bytes_));
    }
  }

  Groups groups_;
  RowsOfIds rows_;
  ThreadPool& pool_;
  GemmShape shape_;  // Shape for all columns of one matrix, without rows.
  GemmPath path_;
  int64_t columns_ = 0, bytes_ = 0, tile_rows_ = 0, tile_columns_ = 0, gemm_scratch_ = 0;
};

// Rows are copied and multiplied this many at a time; a multiple of kWholeDepth.
constexpr int64_t kDepth = 384;
constexpr int64_t kOuterRows = 256, kOuterColumns = 512;
// Cost of a matrix besides its rows, in rows.
constexpr int64_t kCostOfMatrix = 16;

// Divides each matrix into equal tiles of at most kOuterRows by kOuterColumns.
struct Tiles {
  int64_t height = 0, width = 0;  // Size of the matrix.
  int64_t rows = 0, columns = 0;  // Size of a tile.

  int64_t across() const { return ceil_div(width, columns); }
  int64_t count() const { return ceil_div(height, rows) * across(); }
  Range rows_of(int64_t tile) const {
    const int64_t begin = tile / across() * rows;
    return {begin, std::min(begin + rows, height)};
  }
  Range columns_of(int64_t tile) const {
    const int64_t begin = tile % across() * columns;
    return {begin, std::min(begin + columns, width)};
  }
  // Halves the longer side; false if it is too short.
  bool halve() {
    int64_t& side = columns > std::max(rows, kColumnGrain) ? columns : rows;
    const int64_t grain = &side == &columns ? kColumnGrain : kRowGrain;
    if (side <= grain) return false;
    side = even_part(side, side - 1, grain);
    return true;
  }
};

class GroupedOuterProductKernel final : public HostKernel {
 public:
  GroupedOuterProductKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : groups_(graph, node, graph.type(node.outputs[0])),
        a_(graph, node, 0),
        b_(graph, node, 1),
        pool_(pool),
        input_(vector_dtype(graph, node, 0)),
        path_(gemm_path(input_)),
        bytes_(dtype_bytes(input_)),
        largest_{a_.width(), b_.width(), even_part(a_.width(), kOuterRows, kRowGrain),
                 even_part(b_.width(), kOuterColumns, kColumnGrain)} {
    for (int64_t m = 1; m <= largest_.rows; ++m)
      gemm_scratch_ = std::max(
          gemm_scratch_, aligned_bytes(gemm(m, largest_.columns, kDepth, false).scratch_bytes()));
  }

  int64_t scratch_bytes() const override {
    return groups_.scratch_bytes() + pool_.size() * thread_scratch();
  }

  // Threads have equal shares of the cost, and a tile belongs to the share that has its middle.
  void run(const HostArgs& args) override {
    groups_.sort(args);
    const int32_t* const begins = groups_.begins(args);
    const int64_t total = begins[groups_.count()] + kCostOfMatrix * groups_.count();
    const double operations = 2.0 * static_cast<double>(total) * static_cast<double>(a_.width()) *
                              static_cast<double>(b_.width());
    const int threads = operations < kLeastOperations ? 1 : pool_.size();
    const Tiles tiles = tiles_for(begins, threads);
    const auto work = [&](int thread) {
      if (thread >= threads) return;
      const Range share = part_of(2 * total * tiles.count(), thread, threads);
      int64_t before = 0;
      for (int64_t group = 0; group < groups_.count(); ++group) {
        const int64_t cost = 2 * (begins[group + 1] - begins[group] + kCostOfMatrix);
        for (int64_t tile = 0; tile < tiles.count(); ++tile, before += cost)
          if (share.contains(before + cost / 2))
            sum_tile(args, group, tiles.rows_of(tile), tiles.columns_of(tile),
                     args.scratch + groups_.scratch_bytes() + thread * thread_scratch());
      }
    };
    threads == 1 ? work(0) : pool_.run(work);
  }

 private:
  // Returns the largest tiles of which none is more than half the work of a thread.
  Tiles tiles_for(const int32_t* begins, int threads) const {
    int64_t most = 0;
    for (int64_t group = 0; group < groups_.count(); ++group)
      most = std::max<int64_t>(most, begins[group + 1] - begins[group] + kCostOfMatrix);
    const int64_t total = begins[groups_.count()] + kCostOfMatrix * groups_.count();
    Tiles tiles = largest_;
    while (threads > 1 && 2 * threads * most > total * tiles.count() && tiles.halve()) {
    }
    return tiles;
  }

  Gemm gemm(int64_t rows, int64_t columns, int64_t depth, bool adds) const {
    return {{.m = rows,
             .n = columns,
             .k = depth,
             .a = {rows, true},
             .b = {columns, false},
             .c_leading = columns,
             .input = input_,
             .adds = adds},
            path_};
  }
  int64_t a_bytes() const { return aligned_bytes(kDepth * largest_.rows * bytes_); }
  int64_t b_bytes() const { return aligned_bytes(kDepth * largest_.columns * bytes_); }
  int64_t sum_bytes() const { return aligned_bytes(float_bytes(largest_.rows * largest_.columns)); }
  int64_t thread_scratch() const { return a_bytes() + b_bytes() + sum_bytes() + gemm_scratch_; }

  void sum_tile(const HostArgs& args, int64_t group, Range rows, Range columns,
                std::byte* scratch) const {
    std::byte *const a = scratch, *const b = a + a_bytes(), *const c = b + b_bytes();
    float* const sums = reinterpret_cast<float*>(c);
    const int64_t first = groups_.begins(args)[group], end = groups_.begins(args)[group + 1];
    if (first == end) std::fill_n(sums, rows.size() * columns.size(), 0.0f);
    for (int64_t begin = first; begin < end; begin += kDepth) {
      const int64_t depth = std::min(kDepth, end - begin);
      const int32_t* const ids = groups_.order(args) + begin;
      a_.copy(args.inputs[0], ids, depth, rows, a);
      b_.copy(args.inputs[1], ids, depth, columns, b);
      gemm(rows.size(), columns.size(), depth, begin > first).run(a, b, c, c + sum_bytes());
    }
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t at = (group * a_.width() + row) * b_.width() + columns.begin;
      store(sums + (row - rows.begin) * columns.size(), columns.size(),
            args.outputs[0] + at * bytes_);
    }
  }

  void store(const float* sums, int64_t count, std::byte* to) const {
    if (input_ == DType::kF32)
      std::copy_n(sums, count, reinterpret_cast<float*>(to));
    else
      std::transform(sums, sums + count, reinterpret_cast<BFloat16*>(to),
                     [](float sum) { return BFloat16(sum); });
  }

  Groups groups_;
  RowsOfIds a_, b_;
  ThreadPool& pool_;
  DType input_;
  GemmPath path_;
  int64_t bytes_;
  Tiles largest_;
  int64_t gemm_scratch_ = 0;
};

const KernelRegistrar kRegisterProduct{kGroupedProductOp, make_kernel<GroupedProductKernel>};
const KernelRegistrar kRegisterOuterProduct{kGroupedOuterProductOp,
                                            make_kernel<GroupedOuterProductKernel>};

}  // namespace
}  // namespace tessera
