// SPDX-License-Identifier: Apache-2.0
// The kernels of copy and transpose; of slice, pad, concat and shift_right, which are lists of
// rectangles; and of mask_to_owner.
#include "plugins/cuda/kernels/data_movement.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/kernels/movement.h"

namespace tessera::cuda {
namespace {

// Each element of the result is the element of the operand at the same place of the named axes. One
// of three ways: the operand is contiguous as a whole; it is contiguous in the innermost dimension
// of the result (runs are copied); or in another one (tiles are transposed in shared memory).
class PermutationKernel final : public CudaKernel {
 public:
  PermutationKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        op_(*node.op),
        bytes_(dtype_bytes(graph.type(node.outputs[0]).dtype)),
        rectangle_(context),
        runs_(context) {
    const Type &x = graph.type(node.inputs[0]), &y = graph.type(node.outputs[0]);
    space_ = collapse(sizes_of(y.axes), {strides_in(x, y.axes), strides_in(y, y.axes)});
    if (space_.elements() == 0 || space_.sizes.size() <= 1) return;
    strided<2>(space_, op_);  // Refuses what enqueue() cannot do.
    if (in_runs()) return;
    plan_transpose();
    const auto function = [&](std::string_view family) {
      return context.function("data_movement", fmt::format("{}_b{}", family, 8 * bytes_));
    };
    elements_ = function("transpose");
    if (bytes_ == 2 || bytes_ == 4) vectors_ = function("transpose_vectors");
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const DeviceAddress from = args.inputs[0], to = args.outputs[0];
    if (space_.elements() == 0) return;
    if (space_.sizes.size() <= 1)
      return rectangle_.copy(stream, from, to, space_.elements() * bytes_);
    if (!in_runs()) return enqueue_transpose(stream, from, to);
    runs_.enqueue(stream, op_, space_, bytes_, from, to);
  }

 private:
  bool in_runs() const { return space_.operands[0].back() == 1; }

  // Dimension `d` is contiguous in the operand, the last one in the result.
  void plan_transpose() {
    const Strides& from = space_.operands[0];
    const auto d = static_cast<size_t>(std::find(from.begin(), from.end(), 1) - from.begin());
    const size_t last = space_.sizes.size() - 1;
    CHECK(d < last, "{}: no contiguous dimension", op_.name);
    transpose_.rows = space_.sizes[d], transpose_.columns = space_.sizes[last];
    transpose_.from_step = from[last], transpose_.to_step = space_.operands[1][d];
    planes_ = space_;
    const auto drop = [&](std::vector<int64_t>& list) {
      list.pop_back();
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(d));
    };
    drop(planes_.sizes);
    for (Strides& strides : planes_.operands) drop(strides);
    transpose_.planes = strided<2>(planes_, op_);
  }

  void enqueue_transpose(CUstream stream, DeviceAddress from, DeviceAddress to) const {
    // Each stride is a multiple of the rows (in the operand) or of the columns (in the result).
    const bool vectors = vectors_.handle != nullptr &&
                         widest_access({length_of(from), length_of(to), transpose_.rows * bytes_,
                                        transpose_.columns * bytes_}) == 16;
    const int64_t side = transpose_tile(static_cast<int>(bytes_), vectors);
    Transpose p = transpose_;
    p.from = pointer_as<const void>(from), p.to = pointer_as<void>(to);
    p.row_tiles = static_cast<uint32_t>((p.rows + side - 1) / side);
    p.column_tiles = static_cast<uint32_t>((p.columns + side - 1) / side);
    LaunchShape shape;
    shape.blocks_x = planes_.elements() * p.row_tiles * p.column_tiles;
    launch(context_, stream, vectors ? vectors_ : elements_, shape, p);
  }

  Context& context_;
  const OpDef& op_;
  int64_t bytes_;         // Per element.
  IterationSpace space_;  // Operand 0: read; operand 1: written.
  RectangleCopy rectangle_;
  RunCopy runs_;
  Function elements_, vectors_;  // For a transpose.
  Transpose transpose_ = {};
  IterationSpace planes_;
};

const KernelRegistrar kRegisterPermutation{{&kCopyOp, &kTransposeOp},
                                           make_kernel<PermutationKernel>};

// The bits of `value` as an element of `dtype`, repeated to 8 bytes.
uint64_t pattern_of(double value, DType dtype) {
  uint64_t bits = element_bits(value, dtype);
  for (int64_t width = 8 * dtype_bytes(dtype); width < 64; width *= 2) bits |= bits << width;
  return bits;
}

// Part of the result: `count` elements of the axis from `begin`, and all of the other axes. Copied
// from input `input`, from element `from` of its axis on; filled if `input` is negative.
struct Piece {
  int64_t begin = 0, count = 0;
  int64_t input = -1, from = 0;
  double fill = 0.0;
};

std::vector<Piece> pieces_of(const Graph& graph, const Node& node, const std::string& axis) {
  const auto size = [&](ValueId id) { return graph.type(id).axis(axis).size; };
  const int64_t whole = size(node.outputs[0]), inside = size(node.inputs[0]);
  if (node.op == &kSliceOp)
    return {{.count = whole, .input = 0, .from = node.attributes.get(key::kBegin)}};
  if (node.op == &kPadOp) {
    const int64_t before = node.attributes.get(key::kBefore), end = before + inside;
    return {{.begin = before, .count = inside, .input = 0},
            {.begin = 0, .count = before},
            {.begin = end, .count = whole - end}};
  }
  if (node.op == &kShiftRightOp)
    return {{.count = std::min<int64_t>(1, whole), .fill = node.attributes.get(key::kFill)},
            {.begin = 1, .count = whole - 1, .input = 0}};
  std::vector<Piece> pieces;  // For concat.
  int64_t begin = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const int64_t count = size(node.inputs[i]);
    pieces.push_back({.begin = begin, .count = count, .input = static_cast<int64_t>(i)});
    begin += count;
  }
  return pieces;
}

class PiecesKernel final : public CudaKernel {
 public:
  PiecesKernel(const Graph& graph, const Node& node, Context& context) : copy_(context) {
    const std::string axis = node.attributes.get(key::kAxis);
    const Type& y = graph.type(node.outputs[0]);
    int64_t rows = 1, inner_bytes = dtype_bytes(y.dtype);
    bool inside = false;
    for (const Axis& each : y.axes) {
      if (inside) inner_bytes *= each.size;
      if (each.name == axis) inside = true;
      if (!inside) rows *= each.size;
    }
    for (const Piece& piece : pieces_of(graph, node, axis)) {
      if (piece.count <= 0) continue;
      Move move{.input = piece.input,
                .to = piece.begin * inner_bytes,
                .rectangle = {.rows = rows,
                              .row_bytes = piece.count * inner_bytes,
                              .to_pitch = y.axis(axis).size * inner_bytes,
                              .pattern = pattern_of(piece.fill, y.dtype)}};
      if (piece.input >= 0) {
        const Type& x = graph.type(node.inputs[static_cast<size_t>(piece.input)]);
        move.from = piece.from * inner_bytes;
        move.rectangle.from_pitch = x.axis(axis).size * inner_bytes;
      }
      moves_.push_back(move);
    }
    rectangles_.resize(moves_.size());
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    for (size_t i = 0; i < moves_.size(); ++i) {
      const Move& move = moves_[i];
      rectangles_[i] = move.rectangle;
      rectangles_[i].to = args.outputs[0] + move.to;
      if (move.input >= 0)
        rectangles_[i].from = args.inputs[static_cast<size_t>(move.input)] + move.from;
    }
    copy_.enqueue(stream, rectangles_);
  }

 private:
  struct Move {
    int64_t input = -1;
    int64_t from = 0, to = 0;  // Bytes from the operands' begins.
    ByteRectangle rectangle;
  };

  RectangleCopy copy_;
  std::vector<Move> moves_;
  std::vector<ByteRectangle> rectangles_;  // Rectangles of the last launch.
};

const KernelRegistrar kRegisterPieces{{&kSliceOp, &kPadOp, &kConcatOp, &kShiftRightOp},
                                      make_kernel<PiecesKernel>};

// Keeps a replicated value on one device and writes zeros on the others, so that it becomes a
// partial sum. Not a multiplication by 0, which would turn infinities into NaN.
class MaskToOwnerKernel final : public CudaKernel {
 public:
  MaskToOwnerKernel(const Graph& graph, const Node& node, Context& context)
      : copy_(context),
        keep_(node.attributes.get(key::kIsOwner)),
        bytes_(graph.type(node.outputs[0]).bytes()) {}

  bool may_overwrite(int64_t, int64_t) const override { return true; }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    if (!keep_) return copy_.zero(stream, args.outputs[0], bytes_);
    if (args.inputs[0] != args.outputs[0])
      copy_.copy(stream, args.inputs[0], args.outputs[0], bytes_);
  }

 private:
  RectangleCopy copy_;
  bool keep_;
  int64_t bytes_;
};

const KernelRegistrar kRegisterMaskToOwner{kMaskToOwnerOp, make_kernel<MaskToOwnerKernel>};

}  // namespace
}  // namespace tessera::cuda
