// SPDX-License-Identifier: Apache-2.0
// The kernels of reduce_sum and reduce_max. If the last axis of the operand is reduced, each
// contiguous run of it gives one number; if it is kept, its rows are combined element by element.
// Long reductions are divided into pieces whose number depends on the reduced sizes only. So the
// bits of a result depend neither on the number of threads nor on how many others there are.
#include "core/devices/cpu/reduction.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/devices/cpu/registry.h"
#include "core/devices/iteration_space.h"
#include "core/ops/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/devices/cpu/reduction.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/devices/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

struct Sum {
  static constexpr float kNeutral = 0.0f;
  static HWY_INLINE Vec combine(Vec a, Vec b) { return hn::Add(a, b); }
  static float combine(float a, float b) { return a + b; }
  static HWY_INLINE Vec take(Vec a, Vec x) { return combine(a, x); }  // Adds another element.
  static float take(float a, float x) { return combine(a, x); }
};
struct SumOfSquares : Sum {
  static HWY_INLINE Vec take(Vec a, Vec x) { return hn::MulAdd(x, x, a); }
  static float take(float a, float x) { return a + x * x; }
};
struct Maximum {
  static constexpr float kNeutral = -std::numeric_limits<float>::infinity();
  static HWY_INLINE Vec combine(Vec a, Vec b) {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
  static float combine(float a, float b) { return a > b || a != a ? a : b; }
  static HWY_INLINE Vec take(Vec a, Vec x) { return combine(a, x); }
  static float take(float a, float x) { return combine(a, x); }
};

template <class Op, typename T>
float run_of(const void* elements, int64_t count) {
  const T* const from = static_cast<const T*>(elements);
  const int64_t step = lanes();
  Vec a = splat(Op::kNeutral), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 4 * step <= count; i += 4 * step) {
    a = Op::take(a, load(from + i));
    b = Op::take(b, load(from + i + step));
    c = Op::take(c, load(from + i + 2 * step));
    d = Op::take(d, load(from + i + 3 * step));
  }
  for (; i + step <= count; i += step) a = Op::take(a, load(from + i));
  HWY_ALIGN float partial[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(Op::combine(Op::combine(a, b), Op::combine(c, d)), kFloats, partial);
  float result = partial[0];
  for (int64_t lane = 1; lane < step; ++lane) result = Op::combine(result, partial[lane]);
  for (; i < count; ++i) result = Op::take(result, static_cast<float>(from[i]));
  return result;
}

template <class Op, typename T>
void row_of(const void* elements, int64_t count, float* into) {
  const T* const from = static_cast<const T*>(elements);
  int64_t i = 0;
  for (; i + lanes() <= count; i += lanes())
    store(Op::combine(load(into + i), load(from + i)), into + i);
  for (; i < count; ++i) into[i] = Op::combine(into[i], static_cast<float>(from[i]));
}

float ReduceRun(Reduction reduction, DType dtype, const std::byte* from, int64_t count) {
  const bool narrow = dtype == DType::kBF16;
  if (reduction == Reduction::kSum)
    return narrow ? run_of<Sum, BFloat16>(from, count) : run_of<Sum, float>(from, count);
  if (reduction == Reduction::kSumOfSquares)
    return narrow ? run_of<SumOfSquares, BFloat16>(from, count)
                  : run_of<SumOfSquares, float>(from, count);
  return narrow ? run_of<Maximum, BFloat16>(from, count) : run_of<Maximum, float>(from, count);
}

void ReduceRow(Reduction reduction, DType dtype, const std::byte* from, int64_t count,
               float* into) {
  const bool narrow = dtype == DType::kBF16;
  if (reduction == Reduction::kSum)
    return narrow ? row_of<Sum, BFloat16>(from, count, into)
                  : row_of<Sum, float>(from, count, into);
  return narrow ? row_of<Maximum, BFloat16>(from, count, into)
                : row_of<Maximum, float>(from, count, into);
}

template <typename T>
void store_sums_as(const float* sums, int64_t count, void* elements) {
  T* const to = static_cast<T*>(elements);
  for (int64_t i = 0; i < count; i += lanes()) store(load(sums + i, count - i), to + i, count - i);
}

void StoreSums(DType dtype, const float* sums, int64_t count, std::byte* to) {
  dtype == DType::kBF16 ? store_sums_as<BFloat16>(sums, count, to)
                        : store_sums_as<float>(sums, count, to);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(ReduceRun);
HWY_EXPORT(ReduceRow);
HWY_EXPORT(StoreSums);

constexpr int64_t kPiece = 8192;     // Fewest elements of a piece of runs,
constexpr int64_t kPieceRows = 32;   // and fewest rows of one that adds rows.
constexpr int64_t kMostPieces = 64;  // Most pieces of one reduction.

// The order in which the operand is read.
struct Plan {
  Reduction reduction = Reduction::kSum;
  DType dtype = DType::kF32;
  IterationSpace kept;     // The kept dimensions without the run.
  IterationSpace reduced;  // The reduced dimensions without the run.
  int64_t run = 1;         // Elements of the last dimension, if it is contiguous.
  bool run_is_reduced = false;
  int64_t pieces = 1;  // Pieces of each reduction.
};

Plan make_plan(const Graph& graph, const Node& node) {
  const Type &x = graph.type(node.inputs[0]), &y = graph.type(node.outputs[0]);
  Plan plan{.reduction = node.op == &kReduceSumOp ? Reduction::kSum : Reduction::kMax,
            .dtype = vector_dtype(graph, node, 0)};
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
  plan.run_is_reduced = contiguous(plan.reduced) && (y.axes.empty() || !y.has(x.axes.back().name));
  if (plan.run_is_reduced) {
    take_run(plan.reduced);
  } else if (contiguous(plan.kept)) {
    take_run(plan.kept);
  }
  const int64_t rows = plan.reduced.elements();
  const int64_t pieces = plan.run_is_reduced ? rows * plan.run / kPiece : rows / kPieceRows;
  const int64_t cuttable = plan.run_is_reduced && rows == 1 ? plan.run : rows;
  plan.pieces = std::clamp<int64_t>(std::min(pieces, kMostPieces), 1, cuttable);
  return plan;
}

class ReduceKernel final : public HostKernel {
 public:
  ReduceKernel(Plan plan, ThreadPool& pool) : plan_(std::move(plan)), pool_(pool) {
    results_ = plan_.kept.elements();
    rows_ = plan_.reduced.elements();
    width_ = plan_.run_is_reduced ? 1 : plan_.run;
    bytes_ = dtype_bytes(plan_.dtype);
  }

  // A row of partial results per piece.
  int64_t scratch_bytes() const override { return float_bytes(results_ * plan_.pieces * width_); }

  void run(const HostArgs& args) override {
    float* const partial = scratch_floats(args);
    const int64_t work = std::max<int64_t>(1, rows_ * plan_.run / plan_.pieces);
    const int64_t grain = std::max<int64_t>(1, 8192 / work);
    pool_.parallel(results_ * plan_.pieces, grain, [&](Range part, int) {
      for (int64_t i = part.begin; i < part.end; ++i) {
        const std::byte* const from =
            args.inputs[0] + plan_.kept.offset(0, i / plan_.pieces) * bytes_;
        reduce_piece(from, static_cast<int>(i % plan_.pieces), partial + i * width_);
      }
    });
    if (plan_.pieces == 1)
      return store_sums(plan_.dtype, partial, results_ * width_, args.outputs[0]);
    for (int64_t result = 0; result < results_; ++result) {
      float* const first = partial + result * plan_.pieces * width_;
      for (int64_t piece = 1; piece < plan_.pieces; ++piece)
        reduce_row(plan_.reduction, DType::kF32,
                   reinterpret_cast<const std::byte*>(first + piece * width_), width_, first);
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
      const std::byte* const at = from + plan_.reduced.offset(0, row) * bytes_;
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

float reduce_run(Reduction reduction, DType dtype, const std::byte* from, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(ReduceRun)(reduction, dtype, from, count);
}

void reduce_row(Reduction reduction, DType dtype, const std::byte* from, int64_t count,
                float* into) {
  HWY_DYNAMIC_DISPATCH(ReduceRow)(reduction, dtype, from, count, into);
}

void store_sums(DType dtype, const float* sums, int64_t count, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(StoreSums)(dtype, sums, count, to);
}

}  // namespace tessera
#endif  // HWY_ONCE
