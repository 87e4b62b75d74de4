// SPDX-License-Identifier: Apache-2.0
// The kernels of grouped_product and grouped_outer_product.
#include "plugins/cuda/gemm/grouped_product.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/multiples.h"
#include "core/devices/iteration_space.h"
#include "core/ops/grouped_product.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/kernels/id_sort.h"
#include "plugins/cuda/kernels/movement.h"

namespace tessera::cuda {
namespace {

constexpr size_t kIdsOperand = 2;            // Position of the ids in both ops.
constexpr int64_t kMostGroupBlocks = 65535;  // In the third dimension of a grid.

int64_t in_64_bytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A size as a 32-bit integer, as the kernels take it.
int32_t checked_size(const Node& node, const Axis& axis) {
  if (axis.size > std::numeric_limits<int32_t>::max())
    fail("{}: {}={} on one device, expected at most 2^31 - 1; split the axis over more devices",
         node.op->name, axis.name, axis.size);
  return static_cast<int32_t>(axis.size);
}

// Whether rows of this many elements begin at multiples of 16 bytes, if the first does.
bool rows_aligned(DeviceAddress first, int64_t width, int64_t element_bytes) {
  return widest_access({length_of(first), width * element_bytes}) == 16;
}

// The edges of tiles, in elements, and the threads of a block (grouped_product.cu).
struct TileChoice {
  TileChoice(DType dtype, bool large) {
    const bool is_bf16 = dtype == DType::kBF16;
    size = large ? large_size(dtype) : 32;
    threads = large ? 256 : is_bf16 ? 32 : 64;
  }
  static int64_t large_size(DType dtype) { return dtype == DType::kBF16 ? 128 : 64; }

  int64_t size;
  int threads;
};

// Sorts the ids by group, and finds the rows of `operands` for each place.
class GroupOrder {
 public:
  GroupOrder(const Graph& graph, const Node& node, Context& context, const Axis& groups,
             std::span<const size_t> operands)
      : context_(context),
        function_(context.function("grouped_product", "grouped_rows")),
        p_(parameters(graph, node, groups, operands)),
        sort_(context, *node.op, p_.selected, p_.count),
        operands_(static_cast<int64_t>(operands.size())) {}

  int64_t ids() const { return p_.count; }
  int32_t groups() const { return static_cast<int32_t>(p_.selected.rows); }
  int64_t scratch_bytes() const {
    return sort_.scratch_bytes() + begins_bytes() + operands_ * rows_bytes();
  }

  // Arrays in the scratch, after enqueue().
  struct Places {
    const int32_t *order, *begins;
    const int32_t* rows[2];  // Rows of each operand.
  };
  Places enqueue(CUstream stream, const LaunchArgs& args) const {
    const DeviceAddress ids = args.inputs[kIdsOperand];
    const DeviceAddress begins = args.scratch + sort_.scratch_bytes();
    GroupedRows p = p_;
    p.selected.ids = pointer_as<const int32_t>(ids);
    p.order = pointer_as<const int32_t>(sort_.enqueue(stream, ids, args.scratch));
    p.begins = pointer_as<int32_t>(begins);
    for (int64_t i = 0; i < operands_; ++i)
      p.rows[i] = pointer_as<int32_t>(begins + begins_bytes() + i * rows_bytes());
    launch(context_, stream, function_, elementwise_shape(context_, p.count + 1), p);
    return {p.order, p.begins, {p.rows[0], p.rows[1]}};
  }

 private:
  static GroupedRows parameters(const Graph& graph, const Node& node, const Axis& groups,
                                std::span<const size_t> operands) {
    const Type& ids = graph.type(node.inputs[kIdsOperand]);
    GroupedRows p = {};
    p.count = ids.elements();
    p.selected.first = origin_along(node.attributes, 0);
    p.selected.rows = p.selected.all_rows = checked_size(node, groups);
    p.selected.ids_of_batch = make_divider(static_cast<uint64_t>(std::max<int64_t>(1, p.count)));
    std::vector<Strides> strides(2, Strides(ids.axes.size(), 0));
    for (size_t i = 0; i < operands.size(); ++i)
      strides[i] = rows_of_ids(graph.type(node.inputs[operands[i]]), ids);
    p.space = strided<2>(collapse(sizes_of(ids.axes), std::move(strides)), *node.op);
    return p;
  }
  // The strides of an operand along the axes of the ids, in rows; 0 where it lacks an axis.
  static Strides rows_of_ids(const Type& rows, const Type& ids) {
    const Strides own = strides_in(rows, rows.axes);
    Strides strides;
    for (const Axis& axis : ids.axes) {
      const int64_t at = rows.find(axis.name);
      strides.push_back(
          at < 0 ? 0 : own[static_cast<size_t>(at)] / std::max<int64_t>(1, rows.axes.back().size));
    }
    return strides;
  }
  int64_t begins_bytes() const { return in_64_bytes(4 * (p_.selected.rows + 2)); }
  int64_t rows_bytes() const { return in_64_bytes(4 * p_.count); }

  Context& context_;
  Function function_;
  GroupedRows p_;
  IdSort sort_;
  int64_t operands_;
};

class GroupedProductKernel final : public CudaKernel {
 public:
  GroupedProductKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        order_(graph, node, context, graph.type(node.inputs[0]).axes.front(), kRows),
        bytes_(dtype_bytes(graph.type(node.inputs[0]).dtype)) {
    const std::string_view dtype = float_suffix(graph, node, node.inputs[0]);
    const Type& weights = graph.type(node.inputs[0]);
    const Axis& contracted = graph.type(node.inputs[1]).axes.back();
    transposed_ = weights.axes.back().name == contracted.name;
    p_.groups = order_.groups();
    p_.k = checked_size(node, contracted);
    p_.n = checked_size(node, graph.type(node.outputs[0]).axes.back());
    const int64_t large = TileChoice::large_size(weights.dtype);
    // Large tiles read less, if groups fill them and there are enough to keep the GPU busy.
    const int64_t rows_of_group = order_.ids() / std::max<int64_t>(1, p_.groups);
    const bool is_large = std::min<int64_t>(rows_of_group, p_.n) > large / 2 &&
                          order_.ids() / large * ceil_div(p_.n, large) >= context.multiprocessors();
    const TileChoice tile(weights.dtype, is_large);
    // The last group, of ids outside, has no more tiles than all ids.
    const int64_t row_tiles = first_tile(order_.ids(), p_.groups, tile.size) + 1;
    shape_ = {.blocks_x = ceil_div(row_tiles, kBandTiles) * kBandTiles * ceil_div(p_.n, tile.size),
              .threads = tile.threads};
    function_ = context.function(
        "grouped_product",
        fmt::format("grouped_product_{}_{}_{}", dtype, transposed_ ? 't' : 'n', tile.size));
  }

  int64_t scratch_bytes() const override { return order_.scratch_bytes(); }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    if (order_.ids() == 0 || p_.n == 0) return;
    const auto places = order_.enqueue(stream, args);
    GroupedProduct p = p_;
    p.a = pointer_as<const void>(args.inputs[1]), p.b = pointer_as<const void>(args.inputs[0]);
    p.c = pointer_as<void>(args.outputs[0]);
    p.begins = places.begins, p.order = places.order, p.rows = places.rows[0];
    p.a_aligned = rows_aligned(args.inputs[1], p.k, bytes_);
    p.b_aligned = rows_aligned(args.inputs[0], transposed_ ? p.k : p.n, bytes_);
    p.c_aligned = p.n % 8 == 0 && rows_aligned(args.outputs[0], p.n, bytes_);
    launch(context_, stream, function_, shape_, p);
  }

 private:
  static constexpr size_t kRows[] = {1};  // The operand.

  Context& context_;
  GroupOrder order_;
  int64_t bytes_;  // Per element.
  bool transposed_ = false;
  GroupedProduct p_ = {};
  LaunchShape shape_;
  Function function_;
};

class GroupedOuterProductKernel final : public CudaKernel {
 public:
  GroupedOuterProductKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        order_(graph, node, context, graph.type(node.outputs[0]).axes.front(), kFactors),
        bytes_(dtype_bytes(graph.type(node.inputs[0]).dtype)) {
    const std::string_view dtype = float_suffix(graph, node, node.inputs[0]);
    const Type& result = graph.type(node.outputs[0]);
    p_.groups = order_.groups();
    p_.m = checked_size(node, result.axes[1]);
    p_.n = checked_size(node, result.axes[2]);
    const int64_t large = TileChoice::large_size(result.dtype);
    const bool is_large =
        std::min(p_.m, p_.n) > large / 2 &&
        p_.groups * ceil_div(p_.m, large) * ceil_div(p_.n, large) >= context.multiprocessors();
    const TileChoice tile(result.dtype, is_large);
    shape_ = {.blocks_x = ceil_div(p_.m, tile.size) * ceil_div(p_.n, tile.size),
              .blocks_z = std::min<int64_t>(p_.groups, kMostGroupBlocks),
              .threads = tile.threads};
    function_ = context.function("grouped_product",
                                 fmt::format("grouped_outer_product_{}_{}", dtype, tile.size));
  }

  int64_t scratch_bytes() const override { return order_.scratch_bytes(); }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    if (shape_.blocks_x == 0 || shape_.blocks_z == 0) return;
    const auto places = order_.enqueue(stream, args);
    GroupedOuterProduct p = p_;
    p.a = pointer_as<const void>(args.inputs[0]), p.b = pointer_as<const void>(args.inputs[1]);
    p.c = pointer_as<void>(args.outputs[0]);
    p.begins = places.begins, p.a_rows = places.rows[0], p.b_rows = places.rows[1];
    p.a_aligned = rows_aligned(args.inputs[0], p.m, bytes_);
    p.b_aligned = rows_aligned(args.inputs[1], p.n, bytes_);
    p.c_aligned = p.n % 8 == 0 && rows_aligned(args.outputs[0], p.n, bytes_);
    launch(context_, stream, function_, shape_, p);
  }

 private:
  static constexpr size_t kFactors[] = {0, 1};  // The operands.

  Context& context_;
  GroupOrder order_;
  int64_t bytes_;  // Per element.
  GroupedOuterProduct p_ = {};
  LaunchShape shape_;
  Function function_;
};

const KernelRegistrar kRegisterGroupedProduct{kGroupedProductOp, make_kernel<GroupedProductKernel>};
const KernelRegistrar kRegisterGroupedOuterProduct{kGroupedOuterProductOp,
                                                   make_kernel<GroupedOuterProductKernel>};

}  // namespace
}  // namespace tessera::cuda
