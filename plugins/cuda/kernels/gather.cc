// SPDX-License-Identifier: Apache-2.0
// The kernels of gather, pick, scatter_along and cache_update. An id outside the axis selects
// zeros; an id outside the shard of a split axis belongs to another device.
#include "plugins/cuda/kernels/gather.h"

#include <string>

#include <fmt/format.h>

#include "core/ops/attention.h"
#include "core/ops/gather.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/kernels/movement.h"

namespace tessera::cuda {
namespace {

class GatherKernel final : public CudaKernel {
 public:
  GatherKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context), functions_(context, "gather", "gather_b") {
    const Type& table = graph.type(node.inputs[0]);
    const int64_t axis = table.find(node.attributes.get(key::kAxis));
    p_.count = graph.type(node.inputs[1]).elements();
    p_.first = origin_along(node.attributes, axis);
    p_.rows = table.axes[static_cast<size_t>(axis)].size;
    p_.ids_of_batch = ids_of_batch(p_.count, table, axis);
    row_bytes_ = p_.count == 0 ? 0 : graph.type(node.outputs[0]).bytes() / p_.count;
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const DeviceAddress table = args.inputs[0], to = args.outputs[0];
    const int64_t access = widest_access({length_of(table), length_of(to), row_bytes_});
    Gather p = p_;
    p.table = pointer_as<const void>(table), p.to = pointer_as<void>(to);
    p.ids = pointer_as<const int32_t>(args.inputs[1]);
    p.row_units = row_bytes_ / access;
    p.lanes_shift = lanes_shift_of(p.row_units);
    launch(context_, stream, functions_.of(access),
           elementwise_shape(context_, p.count << p.lanes_shift), p);
  }

 private:
  Context& context_;
  AccessFunctions functions_;
  Gather p_ = {};
  int64_t row_bytes_ = 0;
};

class PickKernel final : public CudaKernel {
 public:
  PickKernel(const Graph& graph, const Node& node, Context& context) : context_(context) {
    const Type& x = graph.type(node.inputs[0]);
    const int64_t axis = x.find(node.attributes.get(key::kAxis));
    p_.count = graph.type(node.outputs[0]).elements();
    const int64_t inner = strides_in(x, x.axes)[static_cast<size_t>(axis)];
    p_.inner = make_divider(static_cast<uint64_t>(inner));
    const Type& ids = graph.type(node.inputs[1]);
    const bool several = ids.rank() == x.rank();
    p_.several =
        make_divider(static_cast<uint64_t>(several ? ids.axes[static_cast<size_t>(axis)].size : 1));
    p_.first = origin_along(node.attributes, axis);
    p_.rows = x.axes[static_cast<size_t>(axis)].size;
    function_ = context.function("gather", fmt::format("pick_b{}", 8 * dtype_bytes(x.dtype)));
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    Pick p = p_;
    p.from = pointer_as<const void>(args.inputs[0]), p.to = pointer_as<void>(args.outputs[0]);
    p.ids = pointer_as<const int32_t>(args.inputs[1]);
    launch(context_, stream, function_, elementwise_shape(context_, p.count), p);
  }

 private:
  Context& context_;
  Function function_;
  Pick p_ = {};
};

class ScatterAlongKernel final : public CudaKernel {
 public:
  ScatterAlongKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        function_(context.function(
            "gather", fmt::format("scatter_along_{}", float_suffix(graph, node, node.inputs[0])))) {
    const Type &x = graph.type(node.inputs[0]), &result = graph.type(node.outputs[0]);
    const int64_t axis = x.find(node.attributes.get(key::kK));
    const auto at = static_cast<size_t>(axis);
    p_.count = result.elements();
    p_.inner = make_divider(static_cast<uint64_t>(strides_in(x, x.axes)[at]));
    p_.rows = make_divider(static_cast<uint64_t>(result.axes[at].size));
    p_.several = x.axes[at].size;
    p_.first = origin_along(node.attributes, axis);
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    ScatterAlong p = p_;
    p.x = pointer_as<const void>(args.inputs[0]), p.to = pointer_as<void>(args.outputs[0]);
    p.ids = pointer_as<const int32_t>(args.inputs[1]);
    launch(context_, stream, function_, elementwise_shape(context_, p.count), p);
  }

 private:
  Context& context_;
  Function function_;
  ScatterAlong p_ = {};
};

class CacheUpdateKernel final : public CudaKernel {
 public:
  CacheUpdateKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context), copy_(context), functions_(context, "gather", "cache_update_b") {
    const Type& cache = graph.type(node.inputs[0]);
    const int64_t sequence = graph.type(node.inputs[1]).axes[1].size, heads = cache.axes[1].size;
    p_.count = cache.axes[0].size * sequence * heads;
    p_.sequence = make_divider(static_cast<uint64_t>(sequence));
    p_.heads = make_divider(static_cast<uint64_t>(heads));
    p_.keys = cache.axes[2].size;
    row_bytes_ = cache.axes[3].size * dtype_bytes(cache.dtype);
    cache_bytes_ = cache.bytes();
  }

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const DeviceAddress rows = args.inputs[1], cache = args.outputs[0];
    if (args.inputs[0] != cache) copy_.copy(stream, args.inputs[0], cache, cache_bytes_);
    const int64_t access = widest_access({length_of(rows), length_of(cache), row_bytes_});
    CacheUpdate p = p_;
    p.rows = pointer_as<const void>(rows), p.cache = pointer_as<void>(cache);
    p.starts = pointer_as<const int32_t>(args.inputs[2]);
    p.row_units = row_bytes_ / access;
    p.lanes_shift = lanes_shift_of(p.row_units);
    launch(context_, stream, functions_.of(access),
           elementwise_shape(context_, p.count << p.lanes_shift), p);
  }

 private:
  Context& context_;
  RectangleCopy copy_;
  AccessFunctions functions_;
  CacheUpdate p_ = {};
  int64_t row_bytes_ = 0, cache_bytes_ = 0;
};

const KernelRegistrar kRegisterGather{kGatherOp, make_kernel<GatherKernel>};
const KernelRegistrar kRegisterPick{kPickOp, make_kernel<PickKernel>};
const KernelRegistrar kRegisterScatterAlong{kScatterAlongOp, make_kernel<ScatterAlongKernel>};
const KernelRegistrar kRegisterCacheUpdate{kCacheUpdateOp, make_kernel<CacheUpdateKernel>};

}  // namespace
}  // namespace tessera::cuda
