// SPDX-License-Identifier: Apache-2.0
// The kernels of cross-entropy and its gradient, of a whole vocabulary or of a shard of it: rows
// are divided among threads. The forward pass reads the logits once, with the online softmax of
// Milakov and Gimelshein (2018): when the running maximum grows, the running sum is rescaled.
#include "core/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/devices/cpu/loop_arguments.h"
#include "core/devices/cpu/registry.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/devices/cpu/cross_entropy.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/devices/cpu/simd-inl.h"
#include "core/ops/reshard.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kChunk = 1024;  // Logits processed at a time, in the L1 cache.

// The result of one pass over a row.
struct RowSummary {
  double sum = 0.0;    // Sum of exp(z - maximum).
  double total = 0.0;  // Sum of z.
  float maximum = -std::numeric_limits<float>::infinity();
  float picked = 0.0f;  // z of the label.
};

// Writes the capped logits of a chunk to `z`, padded with -inf to whole vectors, and adds their sum
// to `total`. Returns their maximum.
template <typename T>
HWY_INLINE float read_chunk(const T* logits, int64_t count, float cap, float* z, double& total) {
  const float lowest = -std::numeric_limits<float>::infinity();
  const auto capped_at = [&](int64_t i, int64_t left)
                             HWY_ATTR { return capped(load(logits + i, left), cap); };
  Vec maximum = splat(lowest);
  Vec sum = splat(0.0f);
  const int64_t whole = count / lanes() * lanes();
  for (int64_t i = 0; i < whole; i += lanes()) {
    const Vec value = capped_at(i, lanes());
    hn::Store(value, kFloats, z + i);
    maximum = hn::Max(maximum, value);
    sum = hn::Add(sum, value);
  }
  if (whole < count) {
    const Vec value = capped_at(whole, count - whole);
    const auto inside = hn::FirstN(kFloats, static_cast<size_t>(count - whole));
    const Vec masked = hn::IfThenElse(inside, value, splat(lowest));
    hn::Store(masked, kFloats, z + whole);
    maximum = hn::Max(maximum, masked);
    sum = hn::Add(sum, hn::IfThenElseZero(inside, value));
  }
  total += static_cast<double>(sum_of(sum));
  return max_of(maximum);
}

// Returns the sum of exp(z - center) over a chunk that read_chunk has written.
HWY_INLINE double sum_of_exponentials(const float* z, int64_t count, float center) {
  const Vec middle = splat(center);
  return static_cast<double>(sum_of(sum_over(count, [&](int64_t i, int64_t) HWY_ATTR {
    return falling_exp(hn::Sub(hn::Load(kFloats, z + i), middle));
  })));
}

template <typename T>
RowSummary summarize(const CrossEntropyRows& rows, int64_t row) {
  HWY_ALIGN float z[kChunk];
  const T* logits = static_cast<const T*>(rows.logits) + row * rows.vocab;
  const int64_t label = rows.labels[row];
  RowSummary summary;
  for (int64_t begin = 0; begin < rows.vocab; begin += kChunk) {
    const int64_t count = std::min(kChunk, rows.vocab - begin);
    const float maximum = read_chunk(logits + begin, count, rows.soft_cap, z, summary.total);
    if (label >= begin && label < begin + count) summary.picked = z[label - begin];
    if (!(maximum <= summary.maximum)) {  // Larger, or NaN, which propagates.
      if (summary.sum > 0.0)
        summary.sum *= std::exp(static_cast<double>(summary.maximum) - maximum);
      summary.maximum = maximum;
    }
    if (summary.maximum == -std::numeric_limits<float>::infinity()) continue;
    summary.sum += sum_of_exponentials(z, count, summary.maximum);
  }
  return summary;
}

void CrossEntropy(const CrossEntropyRows& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const RowSummary summary =
        rows.dtype == DType::kBF16 ? summarize<BFloat16>(rows, row) : summarize<float>(rows, row);
    const double lse = summary.maximum + std::log(summary.sum);
    const double mean = summary.total / static_cast<double>(rows.vocab);
    double loss = lse - (1.0 - rows.smoothing) * summary.picked;
    if (rows.smoothing > 0.0f) loss -= rows.smoothing * mean;
    if (rows.z_loss > 0.0f) loss += rows.z_loss * lse * lse;
    rows.loss[row] = static_cast<float>(loss);
    rows.log_likelihood[row] = static_cast<float>(summary.picked - lse);
    rows.correct[row] = summary.picked == summary.maximum ? 1.0f : 0.0f;
    rows.lse[row] = static_cast<float>(lse);
  }
}

// Writes d loss/d logit = cotangent·((1 + 2·z_loss·lse)·p - smoothing/vocab - (1 -
// smoothing)·[label]), times the derivative of the cap.
template <typename T>
void grad_row(const CrossEntropyGradRows& rows, int64_t row) {
  const int64_t vocab = rows.vocab;
  const T* logits = static_cast<const T*>(rows.logits) + row * vocab;
  T* dlogits = static_cast<T*>(rows.dlogits) + row * vocab;
  const float cap = rows.soft_cap;
  const float cotangent = rows.cotangent[row];
  const float level = cotangent * rows.smoothing / static_cast<float>(vocab);
  const float rise = cotangent * (1.0f + 2.0f * rows.z_loss * rows.lse[row]);
  const Vec lse = splat(rows.lse[row]);
  const auto gradient = [&](Vec logit, float target) HWY_ATTR {
    const Vec z = capped(logit, cap);
    const Vec p = falling_exp(hn::Sub(z, lse));
    return through_cap(hn::MulSub(p, splat(rise), splat(level + target)), z, cap);
  };
  const int64_t label = rows.labels[row];
  const bool labelled = label >= 0 && label < vocab;
  // Read before dlogits may overwrite it.
  const float at_label = labelled ? static_cast<float>(logits[label]) : 0.0f;
  for (int64_t i = 0; i < vocab; i += lanes())
    store(gradient(load(logits + i, vocab - i), 0.0f), dlogits + i, vocab - i);
  if (labelled) {
    const float target = cotangent * (1.0f - rows.smoothing);
    dlogits[label] = T(hn::GetLane(gradient(splat(at_label), target)));
  }
}

void CrossEntropyGrad(const CrossEntropyGradRows& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    rows.dtype == DType::kBF16 ? grad_row<BFloat16>(rows, row) : grad_row<float>(rows, row);
}

template <typename T>
void shard_row(const CrossEntropyShardRows<float>& rows, int64_t row) {
  HWY_ALIGN float z[kChunk];
  const T* logits = static_cast<const T*>(rows.logits) + row * rows.vocab;
  const float maximum = rows.maximum[row];
  double sum = 0.0, total = 0.0;
  for (int64_t begin = 0; begin < rows.vocab; begin += kChunk) {
    const int64_t count = std::min(kChunk, rows.vocab - begin);
    read_chunk(logits + begin, count, rows.soft_cap, z, total);
    // All logits of the row are -inf: the sum stays 0.
    if (maximum == -std::numeric_limits<float>::infinity()) continue;
    sum += sum_of_exponentials(z, count, maximum);
  }
  const int64_t label = rows.labels[row] - rows.origin;
  const bool here = label >= 0 && label < rows.vocab;
  rows.sum[row] = static_cast<float>(sum);
  rows.picked[row] = here ? static_cast<float>(logits[label]) : 0.0f;
  if (rows.total != nullptr) rows.total[row] = static_cast<float>(total);
}

void CrossEntropyShard(const CrossEntropyShardRows<float>& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    rows.dtype == DType::kBF16 ? shard_row<BFloat16>(rows, row) : shard_row<float>(rows, row);
}

template <typename T>
void shard_grad_row(const CrossEntropyShardRows<const float>& rows, int64_t row) {
  const int64_t vocab = rows.vocab;
  const T* logits = static_cast<const T*>(rows.logits) + row * vocab;
  T* dlogits = static_cast<T*>(rows.dlogits) + row * vocab;
  const Vec maximum = splat(rows.maximum[row]), rise = splat(rows.sum[row]);
  const Vec level = splat(rows.total != nullptr ? rows.total[row] : 0.0f);
  const auto gradient = [&](Vec logit) HWY_ATTR {
    const Vec z = capped(logit, rows.soft_cap);
    const Vec p = falling_exp(hn::Sub(z, maximum));
    return through_cap(hn::MulAdd(p, rise, level), z, rows.soft_cap);
  };
  const int64_t label = rows.labels[row] - rows.origin;
  const bool here = label >= 0 && label < vocab;
  // Read before dlogits may overwrite it.
  const float at_label = here ? static_cast<float>(logits[label]) : 0.0f;
  for (int64_t i = 0; i < vocab; i += lanes())
    store(gradient(load(logits + i, vocab - i)), dlogits + i, vocab - i);
  if (here) dlogits[label] = T(hn::GetLane(gradient(splat(at_label))) + rows.picked[row]);
}

void CrossEntropyShardGrad(const CrossEntropyShardRows<const float>& rows, int64_t begin,
                           int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    rows.dtype == DType::kBF16 ? shard_grad_row<BFloat16>(rows, row)
                               : shard_grad_row<float>(rows, row);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(CrossEntropy);
HWY_EXPORT(CrossEntropyGrad);
HWY_EXPORT(CrossEntropyShard);
HWY_EXPORT(CrossEntropyShardGrad);

// Runs a loop over the rows of a node's logits.
template <class Rows>
class LogitKernel : public HostKernel {
 public:
  LogitKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : count_(graph.type(node.inputs[1]).elements()), pool_(pool) {
    const Type& logits = graph.type(node.inputs[0]);
    rows_.dtype = vector_dtype(graph, node, 0);
    rows_.vocab = logits.axes.back().size;
    rows_.origin = origin_along(node.attributes, logits.rank() - 1);
    rows_.soft_cap = static_cast<float>(node.attributes.get(key::kSoftCap));
    if constexpr (requires { rows_.smoothing; }) {
      rows_.smoothing = static_cast<float>(node.attributes.get(key::kLabelSmoothing));
      rows_.z_loss = static_cast<float>(node.attributes.get(key::kZLoss));
    }
  }

 protected:
  using Loop = void (*)(const Rows& rows, int64_t begin, int64_t end);
  void run_rows(const HostArgs& args, Loop loop) {
    rows_.logits = args.inputs[0];
    rows_.labels = input_as<int32_t>(args, 1);
    pool_.parallel(count_, 1, [&](Range range, int) { loop(rows_, range.begin, range.end); });
  }

  Rows rows_;
  int64_t count_;

 private:
  ThreadPool& pool_;
};

class CrossEntropyKernel final : public LogitKernel<CrossEntropyRows> {
 public:
  using LogitKernel::LogitKernel;

  void run(const HostArgs& args) override {
    rows_.loss = output_as<float>(args, 0);
    rows_.log_likelihood = output_as<float>(args, 1);
    rows_.correct = output_as<float>(args, 2);
    rows_.lse = output_as<float>(args, 3);
    run_rows(args, HWY_DYNAMIC_DISPATCH(CrossEntropy));
  }
};

class CrossEntropyGradKernel final : public LogitKernel<CrossEntropyGradRows> {
 public:
  using LogitKernel::LogitKernel;

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void run(const HostArgs& args) override {
    rows_.lse = input_as<float>(args, 2);
    rows_.cotangent = input_as<float>(args, 3);
    rows_.dlogits = args.outputs[0];
    run_rows(args, HWY_DYNAMIC_DISPATCH(CrossEntropyGrad));
  }
};

// The base of both kernels of a shard.
template <typename Float>
class ShardKernel : public LogitKernel<CrossEntropyShardRows<Float>> {
 public:
  ShardKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : LogitKernel<CrossEntropyShardRows<Float>>(graph, node, pool),
        with_total_(node.attributes.get(key::kTotal)) {}

 protected:
  void set_arrays(const HostArgs& args, Float* arrays) {
    this->rows_.maximum = input_as<float>(args, 2);
    this->rows_.sum = arrays;
    this->rows_.picked = arrays + this->count_;
    this->rows_.total = with_total_ ? arrays + 2 * this->count_ : nullptr;
  }

 private:
  bool with_total_;
};

class CrossEntropyShardKernel final : public ShardKernel<float> {
 public:
  using ShardKernel::ShardKernel;

  void run(const HostArgs& args) override {
    set_arrays(args, output_as<float>(args, 0));
    run_rows(args, HWY_DYNAMIC_DISPATCH(CrossEntropyShard));
  }
};

class CrossEntropyShardGradKernel final : public ShardKernel<const float> {
 public:
  using ShardKernel::ShardKernel;

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void run(const HostArgs& args) override {
    set_arrays(args, input_as<float>(args, 3));
    rows_.dlogits = args.outputs[0];
    run_rows(args, HWY_DYNAMIC_DISPATCH(CrossEntropyShardGrad));
  }
};

const KernelRegistrar kRegisterCrossEntropy{kCrossEntropyOp, make_kernel<CrossEntropyKernel>};
const KernelRegistrar kRegisterCrossEntropyGrad{kCrossEntropyGradOp,
                                                make_kernel<CrossEntropyGradKernel>};

const KernelRegistrar kRegisterShard{kCrossEntropyShardOp, make_kernel<CrossEntropyShardKernel>};
const KernelRegistrar kRegisterShardGrad{kCrossEntropyShardGradOp,
                                         make_kernel<CrossEntropyShardGradKernel>};

}  // namespace
}  // namespace tessera
#endif  // HWY_ONCE
