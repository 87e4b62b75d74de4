// SPDX-License-Identifier: Apache-2.0
// The kernels of attention, its gradient and the key-value cache: how the work is divided among
// threads. Forward: by head and block of queries. Backward: by key head, because all of its query
// heads add to its gradient; with fewer key heads than threads, by blocks of keys and then by
// blocks of queries. Decoding: by row, key head and run of keys.
#include "core/ops/attention.h"

#include <algorithm>

#include "core/devices/cpu/attention/attention_kernels.h"
#include "core/devices/cpu/registry.h"

namespace tessera {
namespace {

AttentionShape shape_of(const Graph& graph, const Node& node) {
  const bool cached = node.op == &kCachedAttentionOp;
  const Type& q = graph.type(node.inputs[0]);
  const Type& k = graph.type(node.inputs[1]);
  const DType dtype = vector_dtype(graph, node, 0);
  constexpr int64_t kMostWindow = int64_t{1} << 30;  // Sums of a window and a position fit in i32.
  return {.dtype = dtype,
          .batch = q.axes[0].size,
          .queries = q.axes[1].size,
          .keys = k.axes[cached ? 2 : 1].size,
          .heads = q.axes[2].size,
          .kv_heads = k.axes[cached ? 1 : 2].size,
          .head_dim = q.axes[3].size,
          .causal = node.attributes.get(key::kCausal),
          .window = std::min(attention_window(node.attributes), kMostWindow),
          .first_query = first_query(node.attributes),
          .cached = cached,
          .scale = static_cast<float>(node.attributes.get(key::kScale)),
          .cap = static_cast<float>(node.attributes.get(key::kLogitCap)),
          .pairs = attention_in_pairs(dtype, q.axes[3].size)};
}

AttentionOperands operands_of(const HostArgs& args, bool segments) {
  return {.q = args.inputs[0],
          .k = args.inputs[1],
          .v = args.inputs[2],
          .segments = segments ? input_as<int32_t>(args, 3) : nullptr,
          .key_segments = segments ? input_as<int32_t>(args, 4) : nullptr};
}

// Returns 0, last, 1, last - 1, …, so that consecutive ranges of a causal head have equal cost.
int64_t interleaved(int64_t i, int64_t count) { return i % 2 == 0 ? i / 2 : count - 1 - i / 2; }

// Calls work(item, scratch) for each of `count` items; each thread has `floats` floats of scratch.
template <typename Work>
void for_each_item(ThreadPool& pool, int64_t count, const HostArgs& args, int64_t floats,
                   const Work& work) {
  pool.parallel(count, 1, [&](Range range, int thread) {
    for (int64_t item = range.begin; item < range.end; ++item)
      work(item, scratch_floats(args) + thread * floats);
  });
}

// Computes attention of all blocks of queries of all heads.
void attend_to_blocks(const AttentionShape& shape, const AttentionOperands& operands,
                      const AttentionResults& results, const HostArgs& args, int64_t floats,
                      ThreadPool& pool) {
  const int64_t blocks = shape.query_blocks();
  const auto attend = [&](int64_t item, float* scratch) {
    const int64_t head = item / blocks;
    attention_block(shape, operands, results, head / shape.heads, head % shape.heads,
                    interleaved(item % blocks, blocks), scratch);
  };
  for_each_item(pool, shape.batch * shape.heads * blocks, args, floats, attend);
}

class AttentionKernel final : public HostKernel {
 public:
  AttentionKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : shape_(shape_of(graph, node)),
        segments_(node.attributes.get(key::kSegments)),
        thread_floats_(padded_floats(attention_scratch_floats(shape_))),
        pool_(pool) {}

  int64_t scratch_bytes() const override { return float_bytes(pool_.size() * thread_floats_); }

  void run(const HostArgs& args) override {
    attend_to_blocks(shape_, operands_of(args, segments_),
                     {args.outputs[0], output_as<float>(args, 1)}, args, thread_floats_, pool_);
  }

 private:
  AttentionShape shape_;
  bool segments_;
  int64_t thread_floats_;
  ThreadPool& pool_;
};

class AttentionGradKernel final : public HostKernel {
 public:
  AttentionGradKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : shape_(shape_of(graph, node)),
        segments_(node.attributes.get(key::kSegments)),
        thread_floats_(padded_floats(attention_grad_scratch_floats(shape_))),
        pool_(pool) {}

  int64_t scratch_bytes() const override { return float_bytes(pool_.size() * thread_floats_); }

  void run(const HostArgs& args) override {
    const size_t forward = segments_ ? 5 : 3;
    const AttentionGradOperands operands{.forward = operands_of(args, segments_),
                                         .out = args.inputs[forward],
                                         .lse = input_as<float>(args, forward + 1),
                                         .cotangent = args.inputs[forward + 2],
                                         .dq = args.outputs[0],
                                         .dk = args.outputs[1],
                                         .dv = args.outputs[2]};
    using Kind = AttentionGradPart::Kind;
    const int64_t heads = shape_.batch * shape_.kv_heads;
    if (heads >= pool_.size()) {
      run_parts(args, operands, Kind::kHead, heads, 1, 1);
    } else {
      run_parts(args, operands, Kind::kKeys, heads, 1, shape_.key_blocks());
      run_parts(args, operands, Kind::kQueries, heads, shape_.group(), shape_.query_blocks());
    }
  }

 private:
  void run_parts(const HostArgs& args, const AttentionGradOperands& operands,
                 AttentionGradPart::Kind kind, int64_t heads, int64_t members, int64_t blocks) {
    const auto differentiate = [&](int64_t item, float* scratch) {
      const int64_t member = item / blocks, head = member / members;
      attention_grad(shape_, operands,
                     {.kind = kind,
                      .batch = head / shape_.kv_heads,
                      .kv_head = head % shape_.kv_heads,
                      .member = member % members,
                      .block = interleaved(item % blocks, blocks)},
                     scratch);
    };
    for_each_item(pool_, heads * members * blocks, args, thread_floats_, differentiate);
  }

  AttentionShape shape_;
  bool segments_;
  int64_t thread_floats_;
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterAttentionKernel{kAttentionOp, make_kernel<AttentionKernel>};
const KernelRegistrar kRegisterAttentionGrad{kAttentionGradOp, make_kernel<AttentionGradKernel>};

class CacheUpdateKernel final : public HostKernel {
 public:
  CacheUpdateKernel(const Graph& graph, const Node& node, ThreadPool& pool) : pool_(pool) {
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
      pool_.parallel(
          batch_ * kv_heads_ * keys_ * row_bytes_, int64_t{1} << 16, [&](Range range, int) {
            std::memcpy(to + range.begin, from + range.begin, static_cast<size_t>(range.size()));
          });
    }
    const auto* const starts = input_as<int32_t>(args, 2);
    const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 15) / (rows_ * row_bytes_));
    pool_.parallel(batch_ * kv_heads_, grain, [&](Range range, int) {
      for (int64_t item = range.begin; item < range.end; ++item)
        write_rows(args.inputs[1], starts[item / kv_heads_], item, to);
    });
  }

 private:
  // Writes the new rows of one key head of one batch row.
  void write_rows(const std::byte* rows, int64_t start, int64_t item, std::byte* cache) const {
    const int64_t row = item / kv_heads_, head = item % kv_heads_;
    for (int64_t i = std::max<int64_t>(0, -start); i < std::min(rows_, keys_ - start); ++i)
      std::memcpy(cache + (item * keys_ + start + i) * row_bytes_,
                  rows + ((row * rows_ + i) * kv_heads_ + head) * row_bytes_,
                  static_cast<size_t>(row_bytes_));
  }

  int64_t batch_, kv_heads_, keys_, rows_, row_bytes_;
  ThreadPool& pool_;
};

class CachedAttentionKernel final : public HostKernel {
 public:
  CachedAttentionKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : shape_(shape_of(graph, node)), pool_(pool) {
    by_runs_ = shape_.group() * shape_.queries <= kMostCachedQueries;
    most_runs_ = (shape_.keys + kCacheRun - 1) / kCacheRun;
    floats_ = padded_floats(by_runs_ ? most_runs_ * cached_run_floats(shape_)
                                     : attention_scratch_floats(shape_));
  }

  int64_t scratch_bytes() const override {
    const int64_t parts = by_runs_ ? shape_.batch * shape_.kv_heads : pool_.size();
    return float_bytes(parts * floats_);
  }

  void run(const HostArgs& args) override {
    const AttentionOperands operands{.q = args.inputs[0],
                                     .k = args.inputs[1],
                                     .v = args.inputs[2],
                                     .starts = input_as<int32_t>(args, 3)};
    const AttentionResults results{args.outputs[0], output_as<float>(args, 1)};
    by_runs_ ? attend_to_runs(operands, results, scratch_floats(args))
             : attend_to_blocks(shape_, operands, results, args, floats_, pool_);
  }

 private:
  // Returns the number of runs of keys that queries of a row may see; at least one, to write
  // results.
  int64_t runs_of(const AttentionOperands& operands, int64_t row) const {
    const int64_t end = std::min(shape_.keys, operands.starts[row] + shape_.queries);
    return std::max<int64_t>(1, (end + kCacheRun - 1) / kCacheRun);
  }

  void attend_to_runs(const AttentionOperands& operands, const AttentionResults& results,
                      float* scratch) {
    int64_t items = 0;
    for (int64_t row = 0; row < shape_.batch; ++row)
      items += shape_.kv_heads * runs_of(operands, row);
    const auto parts = [&](int64_t row, int64_t head) {
      return scratch + (row * shape_.kv_heads + head) * floats_;
    };
    pool_.parallel(items, 1, [&](Range range, int) {
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
    pool_.parallel(shape_.batch * shape_.kv_heads, 1, [&](Range range, int) {
      for (int64_t item = range.begin; item < range.end; ++item) {
        const int64_t row = item / shape_.kv_heads, head = item % shape_.kv_heads;
        join_runs(shape_, results, row, head, runs_of(operands, row), parts(row, head));
      }
    });
  }

  AttentionShape shape_;
  bool by_runs_ = true;
  int64_t most_runs_ = 0;
  int64_t floats_ = 0;  // Scratch of a key head (by runs) or of a thread (by blocks).
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterUpdate{kCacheUpdateOp, make_kernel<CacheUpdateKernel>};
const KernelRegistrar kRegisterAttention{kCachedAttentionOp, make_kernel<CachedAttentionKernel>};

}  // namespace
}  // namespace tessera
