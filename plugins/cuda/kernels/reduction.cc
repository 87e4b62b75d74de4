// SPDX-License-Identifier: Apache-2.0
// The kernels of reduce_sum, reduce_max and absolute_maximum, which keeps no axis.
#include "plugins/cuda/kernels/reduction.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/ops/fp8.h"
#include "core/ops/reduce.h"
#include "plugins/cuda/kernels/movement.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kFewBlocks = 512;       // Fewer of them do not fill a GPU: pieces are made.
constexpr int64_t kAccessesOfThread = 8;  // The fewest of a piece.
constexpr int64_t kBlockOnResult = 1024;  // Accesses from which a block has one result.

// The operand of a launch.
struct Operand {
  std::string_view dtype;  // "f32" or "bf16".
  IterationSpace kept, reduced;
  bool divisible = true;  // Whether it may be divided into pieces.
  int64_t bytes() const { return dtype == "f32" ? 4 : 2; }
  int64_t width() const { return 16 / bytes(); }
};

struct ReducePass {
  Function function;
  LaunchShape shape;
  Reduce p = {};
  int64_t results = 1;  // All of them.

  void enqueue(const Context& context, CUstream stream, DeviceAddress from, DeviceAddress to) {
    p.from = pointer_as<const void>(from), p.to = pointer_as<void>(to);
    p.aligned = widest_access({length_of(from)}) == 16;
    launch(context, stream, function, shape, p);
  }
};

bool contiguous(const IterationSpace& space) {
  return !space.sizes.empty() && space.operands[0].back() == 1;
}

// Whether all strides, but the last if `inner`, are multiples of the width.
bool strides_in_accesses(const IterationSpace& space, bool inner, int64_t width) {
  const Strides& strides = space.operands[0];
  return std::all_of(strides.begin(), strides.end() - (inner ? 1 : 0),
                     [&](int64_t stride) { return stride % width == 0; });
}

// `step`: terms that a block reads at a time.
void divide_terms(Reduce& p, bool divisible, int64_t blocks, int64_t step) {
  p.pieces = 1;
  if (divisible && blocks > 0 && blocks < kFewBlocks)
    p.pieces = static_cast<int>(
        std::max<int64_t>(1, std::min(kFewBlocks / blocks, p.terms / (step * kAccessesOfThread))));
  p.piece = (p.terms + p.pieces - 1) / p.pieces;
}

ReducePass rows_pass(Operand x, const OpDef& op) {
  ReducePass pass;
  Reduce& p = pass.p;
  const int64_t width = x.width(), elements = x.reduced.elements();
  p.results = pass.results = x.kept.elements();
  p.columns = 1;
  const bool one_run = x.reduced.sizes.size() <= 1;  // May have a tail.
  p.wide = elements >= width && contiguous(x.reduced) &&
           (p.results == 1 || strides_in_accesses(x.kept, false, width)) &&
           strides_in_accesses(x.reduced, true, width) &&
           (one_run || x.reduced.sizes.back() % width == 0);
  if (p.wide) {
    if (one_run) p.tail = static_cast<int>(elements % width);
    x.reduced.sizes.back() /= width;
    for (size_t d = 0; d + 1 < x.reduced.sizes.size(); ++d) x.reduced.operands[0][d] /= width;
  }
  p.kept = strided<1>(x.kept, op), p.reduced = strided<1>(x.reduced, op);
  p.terms = x.reduced.elements();
  p.lanes_shift = p.terms >= kBlockOnResult ? kReduceShift : lanes_shift_of(p.terms);
  const int64_t in_block = kReduceThreads >> p.lanes_shift;
  pass.shape.blocks_x = (p.results + in_block - 1) / in_block;
  divide_terms(p, x.divisible, pass.shape.blocks_x, kReduceThreads);
  return pass;
}

ReducePass columns_pass(Operand x, const OpDef& op) {
  ReducePass pass;
  Reduce& p = pass.p;
  pass.results = x.kept.elements();
  p.columns = x.kept.sizes.back();
  p.wide = p.columns % x.width() == 0 && strides_in_accesses(x.kept, true, x.width()) &&
           strides_in_accesses(x.reduced, false, x.width());
  x.kept.sizes.pop_back(), x.kept.operands[0].pop_back();
  p.results = x.kept.elements();
  p.kept = strided<1>(x.kept, op), p.reduced = strided<1>(x.reduced, op);
  p.terms = x.reduced.elements();
  const int64_t accesses = p.columns / (p.wide ? x.width() : 1);
  p.lanes_shift = lanes_shift_of(accesses);
  p.tiles = static_cast<uint32_t>((accesses + (1 << p.lanes_shift) - 1) >> p.lanes_shift);
  pass.shape.blocks_x = p.results * p.tiles;
  divide_terms(p, x.divisible, pass.shape.blocks_x, kReduceThreads >> p.lanes_shift);
  return pass;
}

std::string_view name_of(const OpDef& op) {
  if (&op == &kAbsoluteMaximumOp) return "max_abs";
  return &op == &kReduceSumOp ? "sum" : "max";
}

// The first pass, or the one that reduces its pieces.
ReducePass make_pass(const Operand& x, bool to_f32, const OpDef& op, Context& context) {
  const bool columns = !contiguous(x.reduced) && contiguous(x.kept);
  ReducePass pass = columns ? columns_pass(x, op) : rows_pass(x, op);
  pass.p.to_f32 = to_f32 || pass.p.pieces > 1;
  pass.shape.threads = kReduceThreads;
  pass.shape.blocks_y = pass.p.pieces;
  pass.function = context.function(
      "reduction",
      fmt::format("reduce_{}_{}_{}", columns ? "columns" : "rows", name_of(op), x.dtype));
  return pass;
}

// The pieces of the first pass.
Operand pieces_of(const ReducePass& first) {
  const int64_t pieces = first.p.pieces, results = first.results;
  const bool columns = first.p.tiles > 0;
  IterationSpace kept{{results}, {{columns ? 1 : pieces}}};
  if (results == 1) kept = {{}, {{}}};
  return {"f32", kept, {{pieces}, {{columns ? results : 1}}}, false};
}

Operand operand_of(const Graph& graph, const Node& node) {
  const Type &x = graph.type(node.inputs[0]), &y = graph.type(node.outputs[0]);
  const Strides strides = strides_in(x, x.axes);
  std::vector<int64_t> sizes[2];
  Strides operands[2];
  for (size_t d = 0; d < x.axes.size(); ++d) {
    const bool kept = y.has(x.axes[d].name);
    sizes[kept].push_back(x.axes[d].size);
    operands[kept].push_back(strides[d]);
  }
  return {float_suffix(graph, node, node.inputs[0]), collapse(sizes[1], {operands[1]}),
          collapse(sizes[0], {operands[0]})};
}

class ReduceKernel final : public CudaKernel {
 public:
  ReduceKernel(const Graph& graph, const Node& node, Context& context) : context_(context) {
    const Operand x = operand_of(graph, node);
    const bool to_f32 = x.dtype == "f32";
    first_ = make_pass(x, to_f32, *node.op, context);
    if (first_.p.pieces > 1) second_ = make_pass(pieces_of(first_), to_f32, *node.op, context);
  }

  int64_t scratch_bytes() const override {
    return second_ ? first_.results * first_.p.pieces * 4 : 0;
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const DeviceAddress to = args.outputs[0];
    first_.enqueue(context_, stream, args.inputs[0], second_ ? args.scratch : to);
    if (second_) second_->enqueue(context_, stream, args.scratch, to);
  }

 private:
  Context& context_;
  ReducePass first_;
  std::optional<ReducePass> second_;
};

const KernelRegistrar kRegisterReduce{{&kReduceSumOp, &kReduceMaxOp, &kAbsoluteMaximumOp},
                                      make_kernel<ReduceKernel>};

}  // namespace
}  // namespace tessera::cuda
