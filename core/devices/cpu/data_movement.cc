// SPDX-License-Identifier: Apache-2.0
// The kernels of copy, transpose, slice, pad, concat and shift_right, which are lists of strided
// copies and fills; of mask_to_owner; and of gather, scatter_add, pick and scatter_along. An id
// outside the axis selects zeros; an id outside the shard of a split axis belongs to another
// device.
#include <algorithm>
#include <cstring>
#include <ranges>
#include <vector>

#include "core/base/error.h"
#include "core/devices/cpu/id_order.h"
#include "core/devices/cpu/reduction.h"
#include "core/devices/cpu/registry.h"
#include "core/devices/cpu/strided_copy.h"
#include "core/graph/op.h"
#include "core/ops/gather.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// A copy of a part of an input to a part of the output; a fill if `input` is negative.
struct Piece {
  int64_t input = -1;
  int64_t from = 0, to = 0;  // Offsets in elements.
  IterationSpace space;
  uint64_t bits = 0;
};

class MovementKernel final : public HostKernel {
 public:
  MovementKernel(std::vector<Piece> pieces, int64_t element_bytes, ThreadPool& pool)
      : pieces_(std::move(pieces)), element_bytes_(element_bytes), pool_(pool) {}

  void run(const HostArgs& args) override {
    for (const Piece& piece : pieces_) {
      std::byte* const to = args.outputs[0] + piece.to * element_bytes_;
      if (piece.input < 0) {
        strided_fill(piece.space, element_bytes_, piece.bits, to, pool_);
      } else {
        const std::byte* const from = args.inputs[static_cast<size_t>(piece.input)];
        strided_copy(piece.space, element_bytes_, from + piece.from * element_bytes_, to, pool_);
      }
    }
  }

 private:
  std::vector<Piece> pieces_;
  int64_t element_bytes_;
  ThreadPool& pool_;
};

// A part of the output: `size` elements of `axis` from `begin`, and all of the other axes.
struct Box {
  const Type& type;
  size_t axis;
  int64_t begin, size;
};

// Copies input `input`, from element `from` of the axis on, to the box.
Piece copy_piece(const Box& box, int64_t input, const Type& source, int64_t from) {
  const Strides read = strides_in(source, source.axes), write = strides_in(box.type, box.type.axes);
  std::vector<int64_t> sizes = sizes_of(box.type.axes);
  sizes[box.axis] = box.size;
  return {.input = input,
          .from = from * read[box.axis],
          .to = box.begin * write[box.axis],
          .space = collapse(std::move(sizes), {read, write})};
}

Piece fill_piece(const Box& box, double value) {
  const Strides write = strides_in(box.type, box.type.axes);
  std::vector<int64_t> sizes = sizes_of(box.type.axes);
  sizes[box.axis] = box.size;
  return {.to = box.begin * write[box.axis],
          .space = collapse(std::move(sizes), {write}),
          .bits = element_bits(value, box.type.dtype)};
}

std::vector<Piece> pieces_of(const Graph& graph, const Node& node) {
  const OpDef* const op = node.op;
  const Type& x = graph.type(node.inputs[0]);
  const Type& y = graph.type(node.outputs[0]);
  if (op == &kTransposeOp || op == &kCopyOp) {
    Piece piece{.input = 0};
    piece.space = collapse(sizes_of(y.axes), {strides_in(x, y.axes), strides_in(y, y.axes)});
    return {piece};
  }
  const auto axis = static_cast<size_t>(y.find(node.attributes.get(key::kAxis)));
  const int64_t size = y.axes[axis].size;
  const auto box = [&](int64_t begin, int64_t count) { return Box{y, axis, begin, count}; };
  if (op == &kSliceOp) return {copy_piece(box(0, size), 0, x, node.attributes.get(key::kBegin))};
  if (op == &kPadOp) {
    const int64_t before = node.attributes.get(key::kBefore);
    const int64_t inside = x.axes[axis].size;
    std::vector<Piece> pieces = {copy_piece(box(before, inside), 0, x, 0)};
    if (before > 0) pieces.push_back(fill_piece(box(0, before), 0.0));
    const int64_t after = size - before - inside;
    if (after > 0) pieces.push_back(fill_piece(box(before + inside, after), 0.0));
    return pieces;
  }
  if (op == &kShiftRightOp) {
    std::vector<Piece> pieces = {fill_piece(box(0, 1), node.attributes.get(key::kFill))};
    if (size > 1) pieces.push_back(copy_piece(box(1, size - 1), 0, x, 0));
    return pieces;
  }
  CHECK(op == &kConcatOp, "no pieces for {}", op->name);
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Type& part = graph.type(node.inputs[i]);
    const int64_t count = part.axes[axis].size;
    pieces.push_back(copy_piece(box(begin, count), static_cast<int64_t>(i), part, 0));
    begin += count;
  }
  return pieces;
}

std::unique_ptr<Kernel> make_movement(const Graph& graph, const Node& node, ThreadPool& pool) {
  const int64_t element_bytes = dtype_bytes(graph.type(node.outputs[0]).dtype);
  return std::make_unique<MovementKernel>(pieces_of(graph, node), element_bytes, pool);
}

const KernelRegistrar kRegisterMovement{
    {&kCopyOp, &kTransposeOp, &kSliceOp, &kPadOp, &kConcatOp, &kShiftRightOp}, make_movement};

// Copies `bytes` bytes; writes zeros if `from` is null.
void copy_or_zero(std::byte* to, const std::byte* from, int64_t bytes) {
  if (from != nullptr) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  } else {
    std::memset(to, 0, static_cast<size_t>(bytes));
  }
}

// Keeps a replicated value on one device and writes zeros on the others, so that it becomes a
// partial sum. A multiplication by 0 would turn infinities into NaN.
class MaskToOwnerKernel final : public HostKernel {
 public:
  MaskToOwnerKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : keep_(node.attributes.get(key::kIsOwner)),
        bytes_(graph.type(node.outputs[0]).bytes()),
        pool_(pool) {}

  bool may_overwrite(int64_t, int64_t) const override { return true; }

  void run(const HostArgs& args) override {
    constexpr int64_t kGrain = 65536;
    const std::byte* const from = args.inputs[0];
    std::byte* const to = args.outputs[0];
    if (keep_ && from == to) return;
    pool_.parallel(bytes_, kGrain, [&](Range part, int) {
      copy_or_zero(to + part.begin, keep_ ? from + part.begin : nullptr, part.size());
    });
  }

 private:
  bool keep_;
  int64_t bytes_;
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterMaskToOwner{kMaskToOwnerOp, make_kernel<MaskToOwnerKernel>};

// Returns the global indices of a shard along an axis of the anchor.
Range shard_range(const Node& node, const Type& anchor, int64_t axis) {
  const int64_t origin = origin_along(node.attributes, axis);
  return {origin, origin + anchor.axes[static_cast<size_t>(axis)].size};
}

const int32_t* ids_of(const HostArgs& args) { return input_as<int32_t>(args, 1); }

// The table row that each id selects: rows of `table` along its axis, counted over all batches.
class SelectedRows {
 public:
  SelectedRows(const Graph& graph, const Node& node, const Type& table) {
    const int64_t axis = table.find(node.attributes.get(key::kAxis));
    int64_t batches = 1;
    for (int64_t i = 0; i < axis; ++i) batches *= table.axes[static_cast<size_t>(i)].size;
    rows_ = shard_range(node, table, axis);
    all_rows_ = batches * rows_.size();
    ids_ = graph.type(node.inputs[1]).elements();
    ids_of_batch_ = std::max<int64_t>(1, ids_ / batches);
  }

  int64_t ids() const { return ids_; }
  int64_t all_rows() const { return all_rows_; }
  // Returns -1 for an id outside the axis.
  int64_t row(const int32_t* ids, int64_t i) const {
    if (!rows_.contains(ids[i])) return -1;
    return i / ids_of_batch_ * rows_.size() + ids[i] - rows_.begin;
  }

 private:
  int64_t ids_ = 0, ids_of_batch_ = 1, all_rows_ = 0;
  Range rows_;
};

class GatherKernel final : public HostKernel {
 public:
  GatherKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : rows_(graph, node, graph.type(node.inputs[0])),
        row_bytes_(graph.type(node.inputs[0]).bytes() / rows_.all_rows()),
        pool_(pool) {}

  void run(const HostArgs& args) override {
    const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, row_bytes_));
    pool_.parallel(rows_.ids(), grain, [&](Range part, int) {
      for (int64_t i = part.begin; i < part.end; ++i) {
        const int64_t row = rows_.row(ids_of(args), i);
        const std::byte* const from = row >= 0 ? args.inputs[0] + row * row_bytes_ : nullptr;
        copy_or_zero(args.outputs[0] + i * row_bytes_, from, row_bytes_);
      }
    });
  }

 private:
  SelectedRows rows_;
  int64_t row_bytes_;
  ThreadPool& pool_;
};

// Sorts the updates by row, so that one thread sums each row of the result in the order of the
// updates: the bits do not depend on the number of threads.
class ScatterAddKernel final : public HostKernel {
 public:
  ScatterAddKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : selected_(graph, node, graph.type(node.outputs[0])),
        updates_(selected_.ids()),
        rows_(selected_.all_rows()),
        pool_(pool) {
    const Type& result = graph.type(node.outputs[0]);
    columns_ = result.elements() / rows_;
    dtype_ = result.dtype;
  }

  // Returns the bytes of each row's start in the order, the order, and a row of sums per thread.
  int64_t scratch_bytes() const override {
    return (rows_ + 1 + updates_) * 4 + (pool_.size() * columns_) * 4 + 64;
  }

  void run(const HostArgs& args) override {
    int32_t* const begins = reinterpret_cast<int32_t*>(args.scratch);
    int32_t* const order = begins + rows_ + 1;
    float* const sums = reinterpret_cast<float*>(order + updates_);
    order_by_value(
        updates_, rows_, [&](int64_t i) { return selected_.row(ids_of(args), i); }, begins, order);
    const int64_t bytes = dtype_bytes(dtype_);
    // The cost of a row is its updates plus the store.
    const int64_t work = rows_ + begins[rows_];
    const auto first_row = [&](int64_t share) {
      const auto rows = std::views::iota(int64_t{0}, rows_);
      return *std::ranges::partition_point(rows,
                                           [&](int64_t row) { return row + begins[row] < share; });
    };
    const int threads = work * columns_ < 16384 ? 1 : pool_.size();
    const auto rows_of = [&](int thread) {
      const Range share = part_of(work, thread, threads);
      const int64_t begin = thread == 0 ? 0 : first_row(share.begin);
      return Range{begin, thread + 1 == threads ? rows_ : first_row(share.end)};
    };
    const auto add_rows = [&](int thread) {
      if (thread >= threads) return;
      float* const sum = sums + thread * columns_;
      const Range part = rows_of(thread);
      for (int64_t row = part.begin; row < part.end; ++row) {
        std::byte* const to = args.outputs[0] + row * columns_ * bytes;
        if (begins[row] == begins[row + 1]) {
          std::memset(to, 0, static_cast<size_t>(columns_ * bytes));
          continue;
        }
        std::fill_n(sum, columns_, 0.0f);
        for (int32_t i = begins[row]; i < begins[row + 1]; ++i)
          add_row(dtype_, args.inputs[0] + order[i] * columns_ * bytes, columns_, sum);
        store_sums(dtype_, sum, columns_, to);
      }
    };
    threads == 1 ? add_rows(0) : pool_.run(add_rows);
  }

 private:
  SelectedRows selected_;
  int64_t updates_, rows_, columns_ = 0;
  DType dtype_ = DType::kF32;
  ThreadPool& pool_;
};

class PickKernel final : public HostKernel {
 public:
  PickKernel(const Graph& graph, const Node& node, ThreadPool& pool) : pool_(pool) {
    const Type& x = graph.type(node.inputs[0]);
    const int64_t axis = x.find(node.attributes.get(key::kAxis));
    const Type& ids = graph.type(node.inputs[1]);
    count_ = ids.elements();
    inner_ = strides_in(x, x.axes)[static_cast<size_t>(axis)];
    if (ids.rank() == x.rank()) several_ = ids.axes[static_cast<size_t>(axis)].size;
    ids_ = shard_range(node, x, axis);
    bytes_ = dtype_bytes(x.dtype);
  }

  void run(const HostArgs& args) override {
    pool_.parallel(count_, 1024, [&](Range part, int) {
      for (int64_t i = part.begin; i < part.end; ++i) {
        const int64_t id = ids_of(args)[i], outer = i / (inner_ * several_);
        const int64_t at = (outer * ids_.size() + id - ids_.begin) * inner_ + i % inner_;
        const std::byte* const from = ids_.contains(id) ? args.inputs[0] + at * bytes_ : nullptr;
        copy_or_zero(args.outputs[0] + i * bytes_, from, bytes_);
      }
    });
  }

 private:
  int64_t count_ = 0, inner_ = 1, bytes_ = 0;  // `inner_` elements per position on the axis.
  int64_t several_ = 1;                        // Number of ids that replace the axis.
  Range ids_;
  ThreadPool& pool_;
};

// Adds the elements of a row in the order of their ids, in f32.
class ScatterAlongKernel final : public HostKernel {
 public:
  ScatterAlongKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : dtype_(vector_dtype(graph, node, 0)), pool_(pool) {
    const Type& x = graph.type(node.inputs[0]);
    const int64_t axis = x.find(node.attributes.get(key::kK));
    several_ = x.axes[static_cast<size_t>(axis)].size;
    inner_ = strides_in(x, x.axes)[static_cast<size_t>(axis)];
    rows_ = x.elements() / several_;
    ids_ = shard_range(node, graph.type(node.outputs[0]), axis);
  }

  // The sums of one row for each thread.
  int64_t scratch_bytes() const override {
    return float_bytes(pool_.size() * padded_floats(ids_.size()));
  }

  void run(const HostArgs& args) override {
    dtype_ == DType::kBF16 ? run_rows<BFloat16>(args) : run_rows<float>(args);
  }

 private:
  template <typename T>
  void run_rows(const HostArgs& args) {
    const int64_t grain = std::max<int64_t>(1, 4096 / (several_ + ids_.size()));
    pool_.parallel(rows_, grain, [&](Range part, int thread) {
      float* const sums = scratch_floats(args) + thread * padded_floats(ids_.size());
      for (int64_t row = part.begin; row < part.end; ++row) {
        const int64_t outer = row / inner_, inner = row % inner_;
        const int64_t from = outer * several_ * inner_ + inner;
        std::fill_n(sums, ids_.size(), 0.0f);
        for (int64_t i = 0; i < several_; ++i) {
          const int64_t at = from + i * inner_, id = ids_of(args)[at];
          if (!ids_.contains(id)) continue;
          sums[id - ids_.begin] += static_cast<float>(input_as<T>(args, 0)[at]);
        }
        T* const to = output_as<T>(args, 0) + outer * ids_.size() * inner_ + inner;
        for (int64_t i = 0; i < ids_.size(); ++i) to[i * inner_] = static_cast<T>(sums[i]);
      }
    });
  }

  DType dtype_;
  int64_t rows_ = 0, several_ = 1, inner_ = 1;
  Range ids_;
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterGather{kGatherOp, make_kernel<GatherKernel>};
const KernelRegistrar kRegisterScatterAdd{kScatterAddOp, make_kernel<ScatterAddKernel>};
const KernelRegistrar kRegisterPick{kPickOp, make_kernel<PickKernel>};
const KernelRegistrar kRegisterScatterAlong{kScatterAlongOp, make_kernel<ScatterAlongKernel>};

}  // namespace
}  // namespace tessera
