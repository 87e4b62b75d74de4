// SPDX-License-Identifier: Apache-2.0
// The kernels of adam_update (Kingma and Ba, 2015, with decoupled weight decay), in place if
// outputs share the buffers of inputs: one pass over parameter, moments and gradient; and of
// squared_norm. Moments in bf16 are rounded to nearest or stochastically when they are stored. A
// word of random bits serves one element: its low half is the noise of the first moment, its high
// half that of the second.
#include "core/ops/optimizer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <vector>

#include "core/devices/cpu/loop_arguments.h"
#include "core/devices/cpu/reduction.h"
#include "core/devices/cpu/registry.h"
#include "core/devices/cpu/rounded_elements.h"
#include "core/ops/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/devices/cpu/optimizer.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/devices/cpu/philox-inl.h"
#include "core/devices/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
HWY_INLINE void store_moment(Vec value, const uint32_t* words, int64_t i, NoiseHalf half, T* to,
                             int64_t left) {
  if constexpr (std::is_same_v<T, BFloat16>)
    if (words != nullptr)
      value = rounded_to_bf16(value, noise_of(hn::LoadU(Words(), words + i), half));
  store(value, to, left);
}

// `words`: for the elements from `begin` on; null: moments are rounded to nearest.
template <typename First, typename Second>
void adam_elements(const AdamStep& step, const HostArgs& args, const uint32_t* words, int64_t begin,
                   int64_t end) {
  const auto* const parameters = input_as<float>(args, 0);
  const auto* const firsts = input_as<First>(args, 1);
  const auto* const seconds = input_as<Second>(args, 2);
  const auto* const gradients = input_as<float>(args, 3);
  auto* const next_parameters = output_as<float>(args, 0);
  auto* const next_firsts = output_as<First>(args, 1);
  auto* const next_seconds = output_as<Second>(args, 2);
  const Vec decay1 = splat(step.decay1), weight1 = splat(step.weight1);
  const Vec decay2 = splat(step.decay2), weight2 = splat(step.weight2);
  const Vec unbias1 = splat(step.unbias1), unbias2 = splat(step.unbias2);
  const Vec epsilon = splat(step.epsilon), epsilon_root = splat(step.epsilon_root);
  const Vec weight_decay = splat(step.weight_decay), rate = splat(step.learning_rate);
  const Vec gradient_scale = splat(step.gradient_scale);
  for (int64_t i = begin; i < end; i += lanes()) {
    const int64_t left = end - i;
    const Vec gradient = hn::Mul(load(gradients + i, left), gradient_scale);
    const Vec parameter = load(parameters + i, left);
    const Vec first = hn::MulAdd(load(firsts + i, left), decay1, hn::Mul(gradient, weight1));
    const Vec second =
        hn::MulAdd(load(seconds + i, left), decay2, hn::Mul(hn::Mul(gradient, gradient), weight2));
    const Vec deviation = hn::Sqrt(hn::MulAdd(second, unbias2, epsilon_root));
    const Vec direction = hn::Div(hn::Mul(first, unbias1), hn::Add(deviation, epsilon));
    const Vec update = hn::MulAdd(parameter, weight_decay, direction);
    store(hn::NegMulAdd(update, rate, parameter), next_parameters + i, left);
    store_moment(first, words, i - begin, NoiseHalf::kLow, next_firsts + i, left);
    store_moment(second, words, i - begin, NoiseHalf::kHigh, next_seconds + i, left);
  }
}

template <typename First, typename Second>
void adam_run(const AdamStep& step, const HostArgs& args, const RandomStream* stream,
              int64_t offset, int64_t begin, int64_t end) {
  if (stream == nullptr) return adam_elements<First, Second>(step, args, nullptr, begin, end);
  HWY_ALIGN uint32_t words[kWordsOfChunk];
  for (int64_t run = begin; run < end; run += kChunk) {
    const int64_t stop = std::min(run + kChunk, end);
    draw_words(*stream, offset + run, stop - run, words);
    adam_elements<First, Second>(step, args, words + (offset + run) % 4, run, stop);
  }
}

// Updates elements [begin, end), whose numbers in the stream are `offset` more. Without a stream,
// moments are rounded to nearest.
void AdamElements(const AdamStep& step, const HostArgs& args, const RandomStream* stream,
                  int64_t offset, int64_t begin, int64_t end) {
  const bool narrow1 = step.first == DType::kBF16, narrow2 = step.second == DType::kBF16;
  const auto run = narrow1   ? narrow2 ? adam_run<BFloat16, BFloat16> : adam_run<BFloat16, float>
                     : narrow2 ? adam_run<float, BFloat16>
                             : adam_run<float, float>;
  run(step, args, stream, offset, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(AdamElements);

class AdamKernel final : public HostKernel {
 public:
  AdamKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : count_(graph.type(node.inputs[0]).elements()),
        options_(adam_options(node.attributes)),
        pool_(pool) {
    step_.first = vector_dtype(graph, node, 1);
    step_.second = vector_dtype(graph, node, 2);
    if (rounds_stochastically(node)) rounded_.emplace(graph.type(node.inputs[0]), node);
    step_.epsilon = static_cast<float>(options_.epsilon);
    step_.epsilon_root = static_cast<float>(options_.epsilon_root);
    step_.weight_decay = static_cast<float>(options_.weight_decay);
  }

  bool may_overwrite(int64_t output, int64_t input) const override { return output == input; }

  void run(const HostArgs& args) override {
    if (*input_as<uint8_t>(args, 7) == 0) return copy_unchanged(args);
    step_.learning_rate = *input_as<float>(args, 4);
    step_.gradient_scale = *input_as<float>(args, 6);
    correct_bias(static_cast<double>(*input_as<float>(args, 5)));
    const float updates = *input_as<float>(args, 5);
    pool_.parallel(count_, kGrain, [&](Range range, int) {
      const auto update = [&](const RandomStream* stream, int64_t offset, Range part) {
        HWY_DYNAMIC_DISPATCH(AdamElements)
        (step_, args, stream, offset, part.begin, part.end);
      };
      if (!rounded_) return update(nullptr, 0, range);
      const RandomStream stream = rounded_->stream(updates);
      rounded_->for_each_run(range, [&](int64_t offset, int64_t begin, int64_t end) {
        update(&stream, offset, {begin, end});
      });
    });
  }

 private:
  static constexpr int64_t kGrain = 4096;

  // In double, because 1 - β^t of the first steps loses most digits in f32.
  void correct_bias(double count) {
    double decay1 = options_.beta1, decay2 = options_.beta2;
    const double correction1 = 1.0 - std::pow(decay1, count + 1.0);
    const double correction2 = 1.0 - std::pow(decay2, count + 1.0);
    if (options_.bias_corrected_decay) {
      decay1 *= (1.0 - std::pow(decay1, count)) / correction1;
      decay2 *= (1.0 - std::pow(decay2, count)) / correction2;
    } else {
      step_.unbias1 = static_cast<float>(1.0 / correction1);
      step_.unbias2 = static_cast<float>(1.0 / correction2);
    }
    step_.decay1 = static_cast<float>(decay1);
    step_.decay2 = static_cast<float>(decay2);
    step_.weight1 = static_cast<float>(1.0 - decay1);
    step_.weight2 = static_cast<float>(1.0 - decay2);
  }

  void copy_unchanged(const HostArgs& args) {
    const DType dtypes[] = {DType::kF32, step_.first, step_.second};
    for (size_t i = 0; i < 3; ++i) {
      if (args.inputs[i] == args.outputs[i]) continue;
      const int64_t bytes = dtype_bytes(dtypes[i]);
      pool_.parallel(count_, kGrain, [&](Range range, int) {
        std::copy(args.inputs[i] + range.begin * bytes, args.inputs[i] + range.end * bytes,
                  args.outputs[i] + range.begin * bytes);
      });
    }
  }

  int64_t count_;
  AdamOptions options_;
  std::optional<RoundedElements> rounded_;  // If moments are rounded stochastically.
  AdamStep step_;
  ThreadPool& pool_;
};

// Computes the squared norm: pieces of all operands are summed in parallel, then their sums.
class SquaredNormKernel final : public HostKernel {
 public:
  SquaredNormKernel(const Graph& graph, const Node& node, ThreadPool& pool) : pool_(pool) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const DType dtype = vector_dtype(graph, node, i);
      const int64_t elements = graph.type(node.inputs[i]).elements();
      for (int64_t begin = 0; begin < elements; begin += kPiece)
        pieces_.push_back({i, dtype, begin, std::min(kPiece, elements - begin)});
    }
  }

  int64_t scratch_bytes() const override { return float_bytes(std::ssize(pieces_)); }

  void run(const HostArgs& args) override {
    float* const sums = scratch_floats(args);
    const auto count = std::ssize(pieces_);
    pool_.parallel(count, 1, [&](Range part, int) {
      for (int64_t i = part.begin; i < part.end; ++i) {
        const Piece& piece = pieces_[static_cast<size_t>(i)];
        sums[i] = reduce_run(Reduction::kSumOfSquares, piece.dtype,
                             args.inputs[piece.operand] + piece.begin * dtype_bytes(piece.dtype),
                             piece.elements);
      }
    });
    *output_as<float>(args, 0) =
        reduce_run(Reduction::kSum, DType::kF32, reinterpret_cast<const std::byte*>(sums), count);
  }

 private:
  static constexpr int64_t kPiece = 8192;
  struct Piece {
    size_t operand;
    DType dtype;
    int64_t begin, elements;
  };

  std::vector<Piece> pieces_;
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterOptimizer{kAdamUpdateOp, make_kernel<AdamKernel>};
const KernelRegistrar kRegisterSquaredNorm{kSquaredNormOp, make_kernel<SquaredNormKernel>};

}  // namespace
}  // namespace tessera
#endif  // HWY_ONCE
