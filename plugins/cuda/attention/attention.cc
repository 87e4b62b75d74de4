// SPDX-License-Identifier: Apache-2.0
// Launches of the attention kernels (attention_forward.cu, attention_backward.cu).
#include "plugins/cuda/attention/attention.h"

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/multiples.h"
#include "core/compile/memory/step_program.h"
#include "core/ops/attention.h"
#include "plugins/cuda/attention/attention_choice.h"
#include "plugins/cuda/device/kernel.h"

namespace tessera::cuda {
static_assert(kEmptyLse == tessera::kEmptyLse);

namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kWarpsPerBlock = 4;  // In kernels with a warp per row.

int size_as_int(const Type& type, size_t axis) { return static_cast<int>(type.axes[axis].size); }

// The head width of the kernels' tiles.
int width_of(const Node& node, int64_t head_dim) {
  const int width = attention_tiles::width_of(static_cast<int>(head_dim));
  if (width > 0) return width;
  fail("{}: head_dim={}, but the CUDA device supports heads up to 256; use more, smaller heads",
       node.op->name, head_dim);
}

// The parameters for q["batch queries heads head_dim"]; `keys` and `kv_heads` are axes of the key
// operand.
AttentionParameters parameters_of(const Graph& graph, const Node& node, size_t keys,
                                  size_t kv_heads) {
  const Type& q = graph.type(node.inputs[0]);
  const Type& k = graph.type(node.inputs[1]);
  AttentionParameters p = {};
  p.batch = size_as_int(q, 0), p.queries = size_as_int(q, 1), p.heads = size_as_int(q, 2);
  p.head_dim = size_as_int(q, 3);
  p.keys = size_as_int(k, keys), p.kv_heads = size_as_int(k, kv_heads);
  p.key_batch_stride = int64_t{p.keys} * p.kv_heads * p.head_dim;
  p.pack = p.runs = 1;
  const int64_t window = attention_window(node.attributes);
  p.window = window > 0 && window < kNoWindow ? static_cast<int>(window) : kNoWindow;
  p.first_query = static_cast<int>(first_query(node.attributes));
  p.run_keys = p.keys;
  p.scale = static_cast<float>(node.attributes.get(key::kScale));
  p.factor = kLog2E * p.scale;
  const auto cap = static_cast<float>(node.attributes.get(key::kLogitCap));
  if (cap > 0.0f) {
    p.cap = kLog2E * cap;
    p.tanh_factor = 2.0f * kLog2E * p.scale / cap;
  }
  return p;
}

AttentionParameters training_parameters(const Graph& graph, const Node& node) {
  AttentionParameters p = parameters_of(graph, node, 1, 2);
  p.key_row_stride = int64_t{p.kv_heads} * p.head_dim;
  p.key_head_stride = p.head_dim;
  p.causal = node.attributes.get(key::kCausal);
  return p;
}

// The kernels of a node: their dtype and width.
struct Variant {
  Variant(const Graph& graph, const Node& node)
      : dtype(float_suffix(graph, node, node.inputs[0])),
        bytes(static_cast<int>(dtype_bytes(graph.type(node.inputs[0]).dtype))),
        width(width_of(node, graph.type(node.inputs[0]).axes[3].size)) {}
  std::string name(std::string_view stem) const {
    return fmt::format("{}_{}_{}", stem, dtype, width);
  }

  std::string dtype;
  int bytes, width;
};

// Whether rows of `row_bytes` bytes begin at multiples of 16 in all of these tensors.
bool rows_aligned(int64_t row_bytes,
                  std::initializer_list<std::span<const DeviceAddress>> tensors) {
  if (row_bytes % 16 != 0) return false;
  for (const std::span<const DeviceAddress> each : tensors)
    for (const DeviceAddress address : each)
      if (address.value() % 16 != 0) return false;
  return true;
}

// Consecutive arrays in scratch memory, each at a multiple of kAlignment.
class ScratchLayout {
 public:
  int64_t take(int64_t bytes) {
    const int64_t at = bytes_;
    bytes_ += aligned(bytes);
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// Segment ids, if any, and their bounds in scratch memory.
class Segments {
 public:
  Segments(const Node& node, const AttentionParameters& p, Context& context, ScratchLayout& scratch)
      : context_(context), present_(node.attributes.get(key::kSegments)) {
    if (!present_) return;
    function_ = context.function("attention_forward", "segment_bounds");
    query_at_ = scratch.take(bounds_of(p.batch, p.queries));
    key_at_ = scratch.take(bounds_of(p.batch, p.keys));
  }
  // The number of operands q, k, v and segment ids.
  size_t operands() const { return present_ ? 5 : 3; }

  void enqueue(CUstream stream, const LaunchArgs& args, AttentionParameters& p) const {
    if (!present_) return;
    p.segments = pointer_as<const int32_t>(args.inputs[3]);
    p.key_segments = pointer_as<const int32_t>(args.inputs[4]);
    p.bounds = bound(stream, p.segments, args.scratch + query_at_, p.batch, p.queries);
    p.key_bounds = bound(stream, p.key_segments, args.scratch + key_at_, p.batch, p.keys);
  }

 private:
  static int64_t bounds_of(int64_t batch, int64_t rows) {
    return batch * ceil_div(rows, kSegmentRun) * static_cast<int64_t>(sizeof(SegmentBounds));
  }
  const SegmentBounds* bound(CUstream stream, const int32_t* segments, DeviceAddress bounds,
                             int batch, int rows) const {
    const SegmentBoundsParameters p{segments, pointer_as<SegmentBounds>(bounds), batch, rows,
                                    static_cast<int>(ceil_div(rows, kSegmentRun))};
    const LaunchShape shape{.blocks_x = ceil_div(int64_t{p.batch} * p.runs, kWarpsPerBlock),
                            .threads = 32 * kWarpsPerBlock};
    launch(context_, stream, function_, shape, p);
    return p.bounds;
  }

  Context& context_;
  bool present_;
  Function function_;
  int64_t query_at_ = 0, key_at_ = 0;
};

LaunchShape forward_shape(const AttentionParameters& p, const Variant& variant) {
  const TileShape tiles = forward_tiles(variant.bytes, variant.width);
  const int64_t rows = ceil_div(int64_t{p.queries} * p.pack, tiles.rows());
  return {.blocks_x = int64_t{p.batch} * (p.heads / p.pack) * rows * p.runs,
          .threads = tiles.threads(),
          .shared_bytes = shared_bytes(variant.bytes, variant.width, tiles, 1)};
}

void take_operands(const LaunchArgs& args, AttentionParameters& p) {
  p.query = pointer_as<const void>(args.inputs[0]);
  p.key = pointer_as<const void>(args.inputs[1]);
  p.value = pointer_as<const void>(args.inputs[2]);
}

class AttentionKernel final : public CudaKernel {
 public:
  AttentionKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        p_(training_parameters(graph, node)),
        segments_(node, p_, context, scratch_),
        row_bytes_(int64_t{p_.head_dim} * Variant(graph, node).bytes) {
    const Variant variant(graph, node);
    function_ = context.function("attention_forward", variant.name("attention"));
    shape_ = forward_shape(p_, variant);
  }

  int64_t scratch_bytes() const override { return scratch_.bytes(); }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    AttentionParameters p = p_;
    take_operands(args, p);
    segments_.enqueue(stream, args, p);
    p.out = pointer_as<void>(args.outputs[0]);
    p.lse = pointer_as<float>(args.outputs[1]);
    p.aligned = rows_aligned(row_bytes_, {args.inputs.first(3), args.outputs.first(1)});
    launch(context_, stream, function_, shape_, p);
  }

 private:
  Context& context_;
  ScratchLayout scratch_;
  AttentionParameters p_;
  Segments segments_;
  int64_t row_bytes_;
  Function function_;
  LaunchShape shape_;
};

class AttentionGradKernel final : public CudaKernel {
 public:
  AttentionGradKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        p_(training_parameters(graph, node)),
        segments_(node, p_, context, scratch_),
        row_bytes_(int64_t{p_.head_dim} * Variant(graph, node).bytes) {
    const Variant variant(graph, node);
    const auto function = [&](const std::string& name) {
      return context.function("attention_backward", name);
    };
    delta_function_ = function("attention_delta_" + variant.dtype);
    key_function_ = function(variant.name("attention_grad_keys"));
    query_function_ = function(variant.name("attention_grad_queries"));
    delta_at_ = scratch_.take(rows() * static_cast<int64_t>(sizeof(float)));
    const TileShape tiles = gradient_tiles(variant.bytes, variant.width);
    key_shape_ = {.blocks_x = int64_t{p_.batch} * p_.kv_heads * ceil_div(p_.keys, tiles.rows()) *
                              (variant.width / gradient_columns(variant.width)),
                  .threads = tiles.threads(),
                  .shared_bytes = shared_bytes(variant.bytes, variant.width, tiles, 2)};
    query_shape_ = key_shape_;
    query_shape_.blocks_x = int64_t{p_.batch} * p_.heads * ceil_div(p_.queries, tiles.rows());
  }

  int64_t scratch_bytes() const override { return scratch_.bytes(); }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const size_t forward = segments_.operands();  // Then out, lse and the cotangent.
    AttentionParameters p = p_;
    take_operands(args, p);
    segments_.enqueue(stream, args, p);
    p.saved_lse = pointer_as<const float>(args.inputs[forward + 1]);
    p.cotangent = pointer_as<const void>(args.inputs[forward + 2]);
    p.dq = pointer_as<void>(args.outputs[0]);
    p.dk = pointer_as<void>(args.outputs[1]);
    p.dv = pointer_as<void>(args.outputs[2]);
    const DeviceAddress delta = args.scratch + delta_at_;
    p.delta = pointer_as<const float>(delta);
    p.aligned = rows_aligned(row_bytes_, {args.inputs.first(3), args.inputs.subspan(forward, 1),
                                          args.inputs.subspan(forward + 2), args.outputs});
    const AttentionDeltaParameters sums{pointer_as<const void>(args.inputs[forward]),
                                        p.cotangent,
                                        pointer_as<float>(delta),
                                        rows(),
                                        p.queries,
                                        p.heads,
                                        p.head_dim,
                                        p.aligned};
    const LaunchShape delta_shape{.blocks_x = ceil_div(rows(), kWarpsPerBlock),
                                  .threads = 32 * kWarpsPerBlock};
    launch(context_, stream, delta_function_, delta_shape, sums);
    launch(context_, stream, key_function_, key_shape_, p);
    launch(context_, stream, query_function_, query_shape_, p);
  }

 private:
  int64_t rows() const { return int64_t{p_.batch} * p_.queries * p_.heads; }

  Context& context_;
  ScratchLayout scratch_;
  AttentionParameters p_;
  Segments segments_;
  int64_t row_bytes_, delta_at_ = 0;
  Function delta_function_, key_function_, query_function_;
  LaunchShape key_shape_, query_shape_;
};

class CachedAttentionKernel final : public CudaKernel {
 public:
  CachedAttentionKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context), p_(parameters_of(graph, node, 2, 1)) {
    const Variant variant(graph, node);
    row_bytes_ = int64_t{p_.head_dim} * variant.bytes;
    width_ = variant.width;
    p_.key_head_stride = int64_t{p_.keys} * p_.head_dim;
    p_.key_row_stride = p_.head_dim;
    p_.causal = true;
    p_.pack = p_.heads / p_.kv_heads;
    // One tile of rows gives too few blocks to read the cache at full speed.
    if (rows() <= forward_tiles(variant.bytes, width_).rows() && p_.keys > kCacheRun) {
      p_.runs = static_cast<int>(ceil_div(p_.keys, kCacheRun));
      p_.run_keys = kCacheRun;
      const int64_t parts = int64_t{p_.batch} * p_.kv_heads * p_.runs * rows();
      partial_at_ = scratch_.take(parts * width_ * static_cast<int64_t>(sizeof(float)));
      statistics_at_ = scratch_.take(parts * static_cast<int64_t>(sizeof(RunStatistics)));
      join_ = context.function("attention_forward", "cached_attention_join_" + variant.dtype);
    }
    function_ = context.function("attention_forward", variant.name("attention"));
    shape_ = forward_shape(p_, variant);
  }

  int64_t scratch_bytes() const override { return scratch_.bytes(); }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    AttentionParameters p = p_;
    take_operands(args, p);
    p.starts = pointer_as<const int32_t>(args.inputs[3]);
    p.out = pointer_as<void>(args.outputs[0]);
    p.lse = pointer_as<float>(args.outputs[1]);
    p.aligned = rows_aligned(row_bytes_, {args.inputs.first(3), args.outputs.first(1)});
    if (p.runs > 1) {
      p.partial = pointer_as<float>(args.scratch + partial_at_);
      p.statistics = pointer_as<RunStatistics>(args.scratch + statistics_at_);
    }
    launch(context_, stream, function_, shape_, p);
    if (p.runs == 1) return;
    const int64_t warps = int64_t{p.batch} * p.kv_heads * rows();
    const LaunchShape join_shape{.blocks_x = ceil_div(warps, kWarpsPerBlock),
                                 .threads = 32 * kWarpsPerBlock};
    launch(context_, stream, join_, join_shape, p, width_);
  }

 private:
  int64_t rows() const { return int64_t{p_.queries} * p_.pack; }

  Context& context_;
  ScratchLayout scratch_;
  AttentionParameters p_;
  int64_t row_bytes_ = 0, partial_at_ = 0, statistics_at_ = 0;
  int width_ = 0;
  Function function_, join_;
  LaunchShape shape_;
};

template <typename Own>
std::unique_ptr<CudaKernel> make_own(const Graph& graph, const Node& node, Context& context) {
  return std::make_unique<Own>(graph, node, context);
}
template <typename Own>
std::unique_ptr<Kernel> make_attention(const Graph& graph, const Node& node, Context& context) {
  return choose_attention(graph, node, context, {make_own<Own>, make_own<AttentionKernel>});
}

const KernelRegistrar kRegisterAttention{kAttentionOp, make_attention<AttentionKernel>};
const KernelRegistrar kRegisterAttentionGrad{kAttentionGradOp, make_attention<AttentionGradKernel>};
const KernelRegistrar kRegisterCachedAttention{kCachedAttentionOp,
                                               make_kernel<CachedAttentionKernel>};

}  // namespace
}  // namespace tessera::cuda
