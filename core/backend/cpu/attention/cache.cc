// SPDX-License-Identifier: Apache-2.0
// The cache of decoding: rows are written into it in place, and few queries (a step) attend to it
// run by run, shared out among threads by row, key head and run; many (a prompt) block by block.
#include "core/ops/cache.h"

#include <algorithm>
#include <cstring>

#include "core/backend/cpu/attention/attention_kernels.h"
#include "core/backend/cpu/attention/cached_attention_kernels.h"
#include "core/backend/cpu/composite_kernel.h"

namespace tessera {
namespace {

class CacheUpdateKernel final : public HostKernel {
 public:
  CacheUpdateKernel(const Graph& graph, const Node& node, ThreadTeam& team) : team_(team) {
    const Type& cache = graph.type(node.inputs[0]);
    batch_ = cache.axes[0].size;
    kv_heads_ = cache.axes[1].size;
    keys_ = cache.axes[2].size;
    rows_ = graph.type(node.inputs[1]).axes[1].size;
    row_bytes_ = cache.axes[3].size * dtype_bytes(cache.dtype);
  }

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void run(const HostArgs& args) override {
    const std::byte* const from = args.inputs[0];
    std::byte* const to = args.outputs[0];
    if (from != to) {
      team_.parallel(
          batch_ * kv_heads_ * keys_ * row_bytes_, int64_t{1} << 16, [&](Range range, int) {
            std::memcpy(to + range.begin, from + range.begin, static_cast<size_t>(range.size()));
          });
    }
    const auto* const starts = input_as<int32_t>(args, 2);
    const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 15) / (rows_ * row_bytes_));
    team_.parallel(batch_ * kv_heads_, grain, [&](Range range, int) {
      for (int64_t item = range.begin; item < range.end; ++item)
        write_rows(args.inputs[1], starts[item / kv_heads_], item, to);
    });
  }

 private:
  // The new rows of one key head of one row of the batch.
  void write_rows(const std::byte* rows, int64_t start, int64_t item, std::byte* cache) const {
    const int64_t row = item / kv_heads_, head = item % kv_heads_;
    for (int64_t i = std::max<int64_t>(0, -start); i < std::min(rows_, keys_ - start); ++i) {
      std::memcpy(cache + (item * keys_ + start + i) * row_bytes_,
                  rows + ((row * rows_ + i) * kv_heads_ + head) * row_bytes_,
                  static_cast<size_t>(row_bytes_));
    }
  }

  int64_t batch_, kv_heads_, keys_, rows_, row_bytes_;
  ThreadTeam& team_;
};

class CachedAttentionKernel final : public HostKernel {
 public:
  CachedAttentionKernel(const Graph& graph, const Node& node, ThreadTeam& team) : team_(team) {
    const Type& q = graph.type(node.inputs[0]);
    const Type& key = graph.type(node.inputs[1]);
    shape_ = {.dtype = vector_dtype(graph, node, 0),
              .batch = q.axes[0].size,
              .queries = q.axes[1].size,
              .keys = key.axes[2].size,
              .heads = q.axes[2].size,
              .kv_heads = key.axes[1].size,
              .head_dim = q.axes[3].size,
              .causal = true,
              .cached = true,
              .scale = float_attribute(node, "scale"),
              .cap = float_attribute(node, "logit_cap"),
              .pairs = attention_in_pairs(vector_dtype(graph, node, 0), q.axes[3].size)};
    by_runs_ = shape_.group() * shape_.queries <= kMostCachedQueries;
    most_runs_ = (shape_.keys + kCacheRun - 1) / kCacheRun;
    floats_ = padded_floats(by_runs_ ? most_runs_ * cached_run_floats(shape_)
                                     : attention_scratch_floats(shape_));
  }

  int64_t scratch_bytes() const override {
    const int64_t parts = by_runs_ ? shape_.batch * shape_.kv_heads : team_.size();
    return parts * floats_ * static_cast<int64_t>(sizeof(float));
  }

  void run(const HostArgs& args) override {
    const AttentionOperands operands{.q = args.inputs[0],
                                     .k = args.inputs[1],
                                     .v = args.inputs[2],
                                     .starts = input_as<int32_t>(args, 3)};
    const AttentionResults results{.out = args.outputs[0]};
    auto* const scratch = reinterpret_cast<float*>(args.scratch);
    if (by_runs_) {
      run_by_runs(operands, results, scratch);
    } else {
      run_by_blocks(operands, results, scratch);
    }
  }

 private:
  // The runs of keys that some query of a row may see; one at least, for results of nothing.
  int64_t runs_of(const AttentionOperands& operands, int64_t row) const {
    const int64_t end = std::min(shape_.keys, operands.starts[row] + shape_.queries);
    return std::max<int64_t>(1, (end + kCacheRun - 1) / kCacheRun);
  }

  void run_by_runs(const AttentionOperands& operands, const AttentionResults& results,
                   float* scratch) {
    int64_t items = 0;
    for (int64_t row = 0; row < shape_.batch; ++row)
      items += shape_.kv_heads * runs_of(operands, row);
    const auto parts = [&](int64_t row, int64_t head) {
      return scratch + (row * shape_.kv_heads + head) * floats_;
    };
    team_.parallel(items, 1, [&](Range range, int) {
      int64_t row = 0, before = 0;  // Items of earlier rows.
      for (int64_t item = range.begin; item < range.end; ++item) {
        int64_t runs = runs_of(operands, row);
        while (item - before >= shape_.kv_heads * runs) {
          before += shape_.kv_heads * runs;
          runs = runs_of(operands, ++row);
        }
        const int64_t head = (item - before) / runs, run = (item - before) % runs;
        attend_to_run(shape_, operands, row, head, run,
                      parts(row, head) + run * cached_run_floats(shape_));
      }
    });
    team_.parallel(shape_.batch * shape_.kv_heads, 1, [&](Range range, int) {
      for (int64_t item = range.begin; item < range.end; ++item) {
        const int64_t row = item / shape_.kv_heads, head = item % shape_.kv_heads;
        join_runs(shape_, results, row, head, runs_of(operands, row), parts(row, head));
      }
    });
  }

  void run_by_blocks(const AttentionOperands& operands, const AttentionResults& results,
                     float* scratch) {
    const int64_t blocks = shape_.query_blocks();
    team_.parallel(shape_.batch * shape_.heads * blocks, 1, [&](Range range, int thread) {
      for (int64_t item = range.begin; item < range.end; ++item) {
        const int64_t head = item / blocks;
        attention_block(shape_, operands, results, head / shape_.heads, head % shape_.heads,
                        item % blocks, scratch + thread * floats_);
      }
    });
  }

  AttentionShape shape_;
  bool by_runs_ = true;
  int64_t most_runs_ = 0;
  int64_t floats_ = 0;  // By runs: of a key head; by blocks: of a thread.
  ThreadTeam& team_;
};

const KernelRegistrar kRegisterUpdate{kCacheUpdateOp, make_kernel<CacheUpdateKernel>};
const KernelRegistrar kRegisterAttention{kCachedAttentionOp, make_kernel<CachedAttentionKernel>};

}  // namespace
}  // namespace tessera
