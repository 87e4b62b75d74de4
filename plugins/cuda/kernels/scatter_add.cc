// SPDX-License-Identifier: Apache-2.0
// The kernel of scatter_add.
#include "plugins/cuda/kernels/scatter_add.h"

#include <algorithm>
#include <bit>
#include <limits>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/ops/gather.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/kernels/movement.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kPartOfBlock = 2048;  // The least updates of a block of the sort.

int64_t rounded_up(int64_t number, int64_t to) { return (number + to - 1) / to * to; }

class ScatterAddKernel final : public CudaKernel {
 public:
  ScatterAddKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        zero_(context),
        count_(context.function("scatter_add", "scatter_add_count")),
        place_(context.function("scatter_add", "scatter_add_place")) {
    const std::string_view dtype = float_suffix(graph, node, node.inputs[0]);
    sum_ = context.function("scatter_add", fmt::format("scatter_add_sum_{}", dtype));
    join_ = context.function("scatter_add", fmt::format("scatter_add_join_{}", dtype));
    const Type& result = graph.type(node.outputs[0]);
    const int64_t axis = result.find(node.attributes.get<std::string>("axis"));
    sums_.count = graph.type(node.inputs[1]).elements();
    SelectedRows& selected = sums_.selected;
    selected.first = origin_along(node.attributes, axis);
    selected.rows = result.axes[static_cast<size_t>(axis)].size;
    selected.all_rows = selected.rows * batches_before(result, axis);
    selected.ids_of_batch = ids_of_batch(sums_.count, result, axis);
    sums_.columns = result.elements() / std::max<int64_t>(1, selected.all_rows);
    bytes_ = dtype_bytes(result.dtype);
    if (sums_.count > std::numeric_limits<int32_t>::max())
      fail(
          "scatter_add: {} ids on one device, expected at most 2^31 - 1; use more devices or a "
          "smaller batch",
          sums_.count);
    const int64_t blocks =
        std::clamp<int64_t>(sums_.count / kPartOfBlock, 1, int64_t{kMostSortBlocks});
    part_ = rounded_up((sums_.count + blocks - 1) / blocks, kDigits);
    blocks_ = part_ == 0 ? 0 : (sums_.count + part_ - 1) / part_;
    chunks_ = (sums_.count + kSumChunk - 1) / kSumChunk;
  }

  // The counts of each block, two orders, and the partial sums.
  int64_t scratch_bytes() const override {
    return counts_bytes() + 2 * order_bytes() + chunks_ * 2 * sums_.columns * 4;
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    zero_.zero(stream, args.outputs[0], sums_.selected.all_rows * sums_.columns * bytes_);
    if (sums_.count == 0 || sums_.columns == 0) return;
    const DeviceAddress order = enqueue_sort(stream, args);
    ScatterAdd p = sums_;
    p.updates = pointer_as<const void>(args.inputs[0]);
    p.selected.ids = pointer_as<const int32_t>(args.inputs[1]);
    p.order = pointer_as<const int32_t>(order);
    p.result = pointer_as<void>(args.outputs[0]);
    p.partial = pointer_as<float>(args.scratch + counts_bytes() + 2 * order_bytes());
    p.vectors = widest_access({length_of(args.inputs[0]), length_of(args.outputs[0]),
                               p.columns * bytes_}) == 16;
    const int64_t vectors = p.vectors ? p.columns * bytes_ / 16 : p.columns;
    LaunchShape shape{.blocks_x = chunks_};
    shape.threads = static_cast<int>(std::min<int64_t>(256, rounded_up(vectors, 32)));
    shape.blocks_y = (vectors + shape.threads - 1) / shape.threads;
    launch(context_, stream, sum_, shape, p);
    launch(context_, stream, join_, shape, p);
  }

 private:
  int64_t counts_bytes() const { return blocks_ * kDigits * 4; }
  int64_t order_bytes() const { return rounded_up(sums_.count * 4, 64); }

  // Returns the order.
  DeviceAddress enqueue_sort(CUstream stream, const LaunchArgs& args) const {
    DeviceAddress next = args.scratch + counts_bytes(), other = next + order_bytes();
    SortPass p{.selected = sums_.selected,
               .order = nullptr,
               .next_order = nullptr,
               .counts = pointer_as<uint32_t>(args.scratch),
               .updates = sums_.count,
               .part = part_,
               .shift = 0};
    p.selected.ids = pointer_as<const int32_t>(args.inputs[1]);
    const LaunchShape shape{.blocks_x = blocks_, .threads = kDigits};
    const int bits =
        static_cast<int>(std::bit_width(static_cast<uint64_t>(sums_.selected.all_rows)));
    for (; p.shift < std::max(bits, 1); p.shift += kDigitBits) {
      p.next_order = pointer_as<int32_t>(next);
      launch(context_, stream, count_, shape, p);
      launch(context_, stream, place_, shape, p);
      p.order = p.next_order;
      std::swap(next, other);
    }
    return other;
  }

  Context& context_;
  RectangleCopy zero_;
  Function count_, place_, sum_, join_;
  ScatterAdd sums_ = {};
  int64_t bytes_ = 4;                           // Of an element.
  int64_t part_ = 0, blocks_ = 0, chunks_ = 0;  // Updates of a block of the sort, and so on.
};

const KernelRegistrar kRegisterScatterAdd{&kScatterAddOp, make_kernel<ScatterAddKernel>};

}  // namespace
}  // namespace tessera::cuda
