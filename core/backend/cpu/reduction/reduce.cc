// SPDX-License-Identifier: Apache-2.0
// The kernels of reduce_sum and reduce_max. If the last axis of the operand is reduced, each
// contiguous run of it gives one number; if it is kept, its rows are combined element by element.
// Long reductions are divided into pieces whose number depends on the sizes only, so that the bits
// do not depend on the number of threads.
#include "core/ops/reduce.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/backend/cpu/iteration_space.h"
#include "core/backend/cpu/reduction/reduce_rows.h"
#include "core/backend/cpu/registry.h"
#include "core/base/error.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

constexpr int64_t kPiece = 8192;     // The fewest elements of a piece.
constexpr int64_t kMostPieces = 64;  // Of one reduction.

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes) result *= size;
  return result;
}

// How the operand is read.
struct Plan {
  Reduction reduction = Reduction::kSum;
  DType dtype = DType::kF32;
  IterationSpace kept;     // The kept dimensions without the run.
  IterationSpace reduced;  // The reduced dimensions without the run.
  int64_t run = 1;         // Elements of the last dimension, if it is contiguous.
  bool run_is_reduced = false;
  int64_t pieces = 1;  // Of each reduction.
};

int64_t offset_of(const IterationSpace& space, int64_t index) {
  int64_t offset = 0;
  for (size_t d = space.sizes.size(); d-- > 0;) {
    offset += index % space.sizes[d] * space.operands[0][d];
    index /= space.sizes[d];
  }
  return offset;
}

Plan make_plan(const Graph& graph, const Node& node) {
  const Type &x = graph.type(node.inputs[0]), &y = graph.type(node.outputs[0]);
  Plan plan{.reduction = node.op == &kReduceSumOp ? Reduction::kSum : Reduction::kMax,
            .dtype = x.dtype};
  if (x.dtype != DType::kF32 && x.dtype != DType::kBF16) {
    fail("{}: the CPU backend reduces f32 and bf16, not {}; cast {}", node.site.text(),
         dtype_name(x.dtype), graph.describe(node.inputs[0]));
  }
  const Strides strides = strides_in(x, x.axes);
  std::vector<int64_t> kept_sizes, reduced_sizes;
  Strides kept_strides, reduced_strides;
  for (size_t d = 0; d < x.axes.size(); ++d) {
    const bool kept = y.has(x.axes[d].name);
    (kept ? kept_sizes : reduced_sizes).push_back(x.axes[d].size);
    (kept ? kept_strides : reduced_strides).push_back(strides[d]);
  }
  plan.kept = collapse(kept_sizes, {kept_strides});
  plan.reduced = collapse(reduced_sizes, {reduced_strides});
  // The last dimension of more than one element is the run.
  const auto take_run = [&](IterationSpace& space) {
    plan.run = space.sizes.back();
    space.sizes.pop_back();
    space.operands[0].pop_back();
  };
  const auto contiguous = [](const IterationSpace& space) {
    return !space.sizes.empty() && space.operands[0].back() == 1;
  };
  plan.run_is_reduced = contiguous(plan.reduced);
  if (plan.run_is_reduced) {
    take_run(plan.reduced);
  } else if (contiguous(plan.kept)) {
    take_run(plan.kept);
  }
  const int64_t rows = product(plan.reduced.sizes);
  const int64_t length = rows * plan.run;
  const int64_t results = product(plan.kept.sizes);
  // Few long reductions are divided. Many are parallel already.
  if (results < kMostPieces) {
    const int64_t cuttable = plan.run_is_reduced && rows == 1 ? plan.run : rows;
    plan.pieces = std::clamp<int64_t>(std::min(length / kPiece, kMostPieces), 1, cuttable);
  }
  return plan;
}

class ReduceKernel final : public HostKernel {
 public:
  ReduceKernel(Plan plan, ThreadPool& pool) : plan_(std::move(plan)), pool_(pool) {
    results_ = product(plan_.kept.sizes);
    rows_ = product(plan_.reduced.sizes);
    width_ = plan_.run_is_reduced ? 1 : plan_.run;
    bytes_ = dtype_bytes(plan_.dtype);
  }

  // A row of partial results per piece.
  int64_t scratch_bytes() const override { return results_ * plan_.pieces * width_ * 4; }

  void run(const HostArgs& args) override {
    float* const partial = reinterpret_cast<float*>(args.scratch);
    const int64_t work = std::max<int64_t>(1, rows_ * plan_.run / plan_.pieces);
    const int64_t grain = std::max<int64_t>(1, 8192 / work);
    pool_.parallel(results_ * plan_.pieces, grain, [&](Range part, int) {
      for (int64_t i = part.begin; i < part.end; ++i) {
        const std::byte* const from =
            args.inputs[0] + offset_of(plan_.kept, i / plan_.pieces) * bytes_;
        reduce_piece(from, static_cast<int>(i % plan_.pieces), partial + i * width_);
      }
    });
    if (plan_.pieces == 1) {
      store_sums(plan_.dtype, partial, results_ * width_, args.outputs[0]);
      return;
    }
    for (int64_t result = 0; result < results_; ++result) {
      float* const first = partial + result * plan_.pieces * width_;
      for (int64_t piece = 1; piece < plan_.pieces; ++piece) {
        reduce_row(plan_.reduction, DType::kF32,
                   reinterpret_cast<const std::byte*>(first + piece * width_), width_, first);
      }
      store_sums(plan_.dtype, first, width_, args.outputs[0] + result * width_ * bytes_);
    }
  }

 private:
  void reduce_piece(const std::byte* from, int piece, float* into) const {
    const auto pieces = static_cast<int>(plan_.pieces);
    const bool sum = plan_.reduction == Reduction::kSum;
    std::fill_n(into, width_, sum ? 0.0f : -std::numeric_limits<float>::infinity());
    if (plan_.run_is_reduced && rows_ == 1) {
      const Range part = part_of(plan_.run, piece, pieces, 16);
      *into = reduce_run(plan_.reduction, plan_.dtype, from + part.begin * bytes_, part.size());
      return;
    }
    const Range part = part_of(rows_, piece, pieces);
    for (int64_t row = part.begin; row < part.end; ++row) {
      const std::byte* const at = from + offset_of(plan_.reduced, row) * bytes_;
      if (plan_.run_is_reduced) {
        const float value = reduce_run(plan_.reduction, plan_.dtype, at, plan_.run);
        reduce_row(plan_.reduction, DType::kF32, reinterpret_cast<const std::byte*>(&value), 1,
                   into);
      } else {
        reduce_row(plan_.reduction, plan_.dtype, at, plan_.run, into);
      }
    }
  }

  Plan plan_;
  ThreadPool& pool_;
  int64_t results_ = 1, rows_ = 1, width_ = 1, bytes_ = 4;
};

std::unique_ptr<Kernel> make_reduce(const Graph& graph, const Node& node, ThreadPool& pool) {
  return std::make_unique<ReduceKernel>(make_plan(graph, node), pool);
}

const KernelRegistrar kRegisterReduce{{&kReduceSumOp, &kReduceMaxOp}, make_reduce};

}  // namespace
}  // namespace tessera
