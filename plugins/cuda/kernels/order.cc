// SPDX-License-Identifier: Apache-2.0
// The kernels of argsort, top_k and cumulative_sum.
#include "plugins/cuda/kernels/order.h"

#include <algorithm>
#include <bit>
#include <string>

#include <fmt/format.h>

#include "core/devices/iteration_space.h"
#include "core/ops/order.h"
#include "plugins/cuda/device/kernel.h"

namespace tessera::cuda {
namespace {

// top_k searches a row this often at most; for more it sorts the row.
constexpr int64_t kMostSearches = 32;
// Rows beyond this size are searched by a block each, others by a warp.
constexpr int64_t kWarpRow = 1024;

// "argsort_f32"
std::string function_name(std::string_view kernel, const Graph& graph, const Node& node) {
  const bool integers = graph.type(node.inputs[0]).dtype == DType::kI32;
  return fmt::format("{}_{}", kernel, integers ? "i32" : float_suffix(graph, node, node.inputs[0]));
}

// The kernel of argsort and top_k.
class OrderKernel final : public CudaKernel {
 public:
  OrderKernel(const Graph& graph, const Node& node, Context& context) : context_(context) {
    const AxisShape shape(graph.type(node.inputs[0]), node.attributes.get(key::kAxis));
    p_.rows = shape.outer * shape.inner, p_.size = shape.size;
    p_.kept = graph.type(node.outputs[0]).elements() / p_.rows;
    p_.padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(p_.size)));
    p_.inner = make_divider(static_cast<uint64_t>(shape.inner));
    p_.flip = node.attributes.get(key::kDescending) ? 0xffffffffu : 0;
    const bool searches = node.op == &kTopKOp && p_.kept <= kMostSearches;
    function_ =
        context.function("order", function_name(searches ? "top_k" : "argsort", graph, node));
    searches ? search() : sort();
  }

  int64_t scratch_bytes() const override { return scratch_bytes_; }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    Order p = p_;
    p.x = pointer_as<const void>(args.inputs[0]);
    p.result = pointer_as<int32_t>(args.outputs[0]);
    if (scratch_bytes_ > 0) p.keys = pointer_as<uint64_t>(args.scratch);
    launch(context_, stream, function_, shape_, p);
  }

 private:
  void search() {
    p_.lanes_shift = std::countr_zero(p_.size <= kWarpRow ? 32u : unsigned{kTopKThreads});
    const int64_t rows_of_block = kTopKThreads >> p_.lanes_shift;
    shape_ = {.blocks_x = (p_.rows + rows_of_block - 1) / rows_of_block, .threads = kTopKThreads};
  }
  void sort() {
    shape_.threads = static_cast<int>(std::clamp<int64_t>(p_.padded / 2, 32, kSortThreads));
    shape_.blocks_x = std::min<int64_t>(p_.rows, 8LL * context_.multiprocessors());
    if (p_.padded <= kSharedKeys) {
      shape_.shared_bytes = static_cast<int>(8 * p_.padded);
    } else {
      scratch_bytes_ = 8 * shape_.blocks_x * p_.padded;
    }
  }

  Context& context_;
  Function function_;
  LaunchShape shape_;
  Order p_ = {};
  int64_t scratch_bytes_ = 0;
};

class CumulativeSumKernel final : public CudaKernel {
 public:
  CumulativeSumKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        function_(context.function("order", function_name("cumulative_sum", graph, node))) {
    const AxisShape shape(graph.type(node.inputs[0]), node.attributes.get(key::kAxis));
    p_.size = shape.size, p_.inner = shape.inner;
    while (p_.columns_shift < kSumColumnsShift && (1 << p_.columns_shift) < shape.inner)
      ++p_.columns_shift;
    const int64_t blocks = (shape.inner + (1 << p_.columns_shift) - 1) >> p_.columns_shift;
    p_.blocks = make_divider(static_cast<uint64_t>(blocks));
    p_.exclusive = node.attributes.get(key::kExclusive);
    p_.reverse = node.attributes.get(key::kReverse);
    shape_ = {.blocks_x = shape.outer * blocks, .threads = kSumThreads};
  }

  bool may_overwrite(int64_t, int64_t) const override { return true; }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    CumulativeSum p = p_;
    p.x = pointer_as<const void>(args.inputs[0]), p.y = pointer_as<void>(args.outputs[0]);
    launch(context_, stream, function_, shape_, p);
  }

 private:
  Context& context_;
  Function function_;
  LaunchShape shape_;
  CumulativeSum p_ = {};
};

const KernelRegistrar kRegisterOrder{{&kArgsortOp, &kTopKOp}, make_kernel<OrderKernel>};
const KernelRegistrar kRegisterCumulativeSum{kCumulativeSumOp, make_kernel<CumulativeSumKernel>};

}  // namespace
}  // namespace tessera::cuda
