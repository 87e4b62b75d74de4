// SPDX-License-Identifier: Apache-2.0
// The kernel of scatter_add.
#include "plugins/cuda/kernels/scatter_add.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/ops/gather.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/kernels/id_sort.h"
#include "plugins/cuda/kernels/movement.h"

namespace tessera::cuda {
namespace {

class ScatterAddKernel final : public CudaKernel {
 public:
  ScatterAddKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        zero_(context),
        sums_(sums_of(graph, node)),
        sort_(context, *node.op, sums_.selected, sums_.count) {
    const std::string_view dtype = float_suffix(graph, node, node.inputs[0]);
    sum_ = context.function("scatter_add", fmt::format("scatter_add_sum_{}", dtype));
    join_ = context.function("scatter_add", fmt::format("scatter_add_join_{}", dtype));
    bytes_ = dtype_bytes(graph.type(node.outputs[0]).dtype);
    chunks_ = (sums_.count + kSumChunk - 1) / kSumChunk;
  }

  // The sort, and the partial sums.
  int64_t scratch_bytes() const override {
    return sort_.scratch_bytes() + chunks_ * 2 * sums_.columns * 4;
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    zero_.zero(stream, args.outputs[0], sums_.selected.all_rows * sums_.columns * bytes_);
    if (sums_.count == 0 || sums_.columns == 0) return;
    const DeviceAddress order = sort_.enqueue(stream, args.inputs[1], args.scratch);
    ScatterAdd p = sums_;
    p.updates = pointer_as<const void>(args.inputs[0]);
    p.selected.ids = pointer_as<const int32_t>(args.inputs[1]);
    p.order = pointer_as<const int32_t>(order);
    p.result = pointer_as<void>(args.outputs[0]);
    p.partial = pointer_as<float>(args.scratch + sort_.scratch_bytes());
    p.vectors = widest_access({length_of(args.inputs[0]), length_of(args.outputs[0]),
                               p.columns * bytes_}) == 16;
    const int64_t vectors = p.vectors ? p.columns * bytes_ / 16 : p.columns;
    LaunchShape shape{.blocks_x = chunks_};
    shape.threads = static_cast<int>(std::min<int64_t>(256, (vectors + 31) / 32 * 32));
    shape.blocks_y = (vectors + shape.threads - 1) / shape.threads;
    launch(context_, stream, sum_, shape, p);
    launch(context_, stream, join_, shape, p);
  }

 private:
  static ScatterAdd sums_of(const Graph& graph, const Node& node) {
    const Type& result = graph.type(node.outputs[0]);
    const int64_t axis = result.find(node.attributes.get(key::kAxis));
    ScatterAdd sums = {};
    sums.count = graph.type(node.inputs[1]).elements();
    SelectedRows& selected = sums.selected;
    selected.first = origin_along(node.attributes, axis);
    selected.rows = result.axes[static_cast<size_t>(axis)].size;
    selected.all_rows = selected.rows * batches_before(result, axis);
    selected.ids_of_batch = ids_of_batch(sums.count, result, axis);
    sums.columns = result.elements() / std::max<int64_t>(1, selected.all_rows);
    return sums;
  }

  Context& context_;
  RectangleCopy zero_;
  ScatterAdd sums_;
  IdSort sort_;
  Function sum_, join_;
  int64_t bytes_ = 4;   // Per element.
  int64_t chunks_ = 0;  // Chunks of updates.
};

const KernelRegistrar kRegisterScatterAdd{kScatterAddOp, make_kernel<ScatterAddKernel>};

}  // namespace
}  // namespace tessera::cuda
