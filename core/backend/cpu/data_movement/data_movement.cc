// SPDX-License-Identifier: Apache-2.0
// The kernels of copy, transpose, slice, pad, concat and shift_right, which are lists of strided
// copies and fills, and of mask_to_owner.
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "core/backend/cpu/data_movement/strided_copy.h"
#include "core/backend/cpu/registry.h"
#include "core/base/error.h"
#include "core/graph/op.h"
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

// The bits of `value` as an element of `dtype`.
uint64_t element_bits(double value, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::bit_cast<uint64_t>(value);
    case DType::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::kBF16:
      return BFloat16(static_cast<float>(value)).bits;
    case DType::kI32:
      return std::bit_cast<uint32_t>(static_cast<int32_t>(value));
    case DType::kU32:
      return static_cast<uint32_t>(value);
    case DType::kBool:
      return value != 0.0;
  }
  return 0;
}

std::vector<int64_t> sizes_of(const Type& type) {
  std::vector<int64_t> sizes;
  for (const Axis& axis : type.axes) sizes.push_back(axis.size);
  return sizes;
}

// A part of the output: `size` elements of `axis` from `begin`, and all of the other axes.
struct Box {
  const Type& type;
  size_t axis;
  int64_t begin, size;
};

// Copies input `input`, from element `from` of the axis on, to the box.
Piece copy_piece(const Box& box, int64_t input, const Type& source, int64_t from) {
  const Strides read = strides_in(source, source.axes), write = strides_in(box.type, box.type.axes);
  std::vector<int64_t> sizes = sizes_of(box.type);
  sizes[box.axis] = box.size;
  return {.input = input,
          .from = from * read[box.axis],
          .to = box.begin * write[box.axis],
          .space = collapse(std::move(sizes), {read, write})};
}

Piece fill_piece(const Box& box, double value) {
  const Strides write = strides_in(box.type, box.type.axes);
  std::vector<int64_t> sizes = sizes_of(box.type);
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
    piece.space = collapse(sizes_of(y), {strides_in(x, y.axes), strides_in(y, y.axes)});
    return {piece};
  }
  const auto axis = static_cast<size_t>(y.find(node.attributes.get<std::string>("axis")));
  const int64_t size = y.axes[axis].size;
  const auto box = [&](int64_t begin, int64_t count) { return Box{y, axis, begin, count}; };
  if (op == &kSliceOp) {
    return {copy_piece(box(0, size), 0, x, node.attributes.get<int64_t>("begin"))};
  }
  if (op == &kPadOp) {
    const int64_t before = node.attributes.get<int64_t>("before");
    const int64_t inside = x.axes[axis].size;
    std::vector<Piece> pieces = {copy_piece(box(before, inside), 0, x, 0)};
    if (before > 0) pieces.push_back(fill_piece(box(0, before), 0.0));
    const int64_t after = size - before - inside;
    if (after > 0) pieces.push_back(fill_piece(box(before + inside, after), 0.0));
    return pieces;
  }
  if (op == &kShiftRightOp) {
    std::vector<Piece> pieces = {fill_piece(box(0, 1), node.attributes.get<double>("fill"))};
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

// Keeps a replicated value on one device and writes zeros on the others, so that it becomes a
// partial sum. Not a multiplication by 0, which would turn infinities into NaN.
class MaskToOwnerKernel final : public HostKernel {
 public:
  MaskToOwnerKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : keep_(flag_attribute(node, "keep")),
        bytes_(graph.type(node.outputs[0]).bytes()),
        pool_(pool) {}

  bool may_overwrite(int64_t, int64_t) const override { return true; }

  void run(const HostArgs& args) override {
    constexpr int64_t kGrain = 65536;
    const std::byte* const from = args.inputs[0];
    std::byte* const to = args.outputs[0];
    if (keep_ && from == to) return;
    pool_.parallel(bytes_, kGrain, [&](Range part, int) {
      const auto size = static_cast<size_t>(part.size());
      if (keep_) {
        std::memcpy(to + part.begin, from + part.begin, size);
      } else {
        std::memset(to + part.begin, 0, size);
      }
    });
  }

 private:
  bool keep_;
  int64_t bytes_;
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterMaskToOwner{kMaskToOwnerOp, make_kernel<MaskToOwnerKernel>};

}  // namespace
}  // namespace tessera
