// SPDX-License-Identifier: Apache-2.0
// The kernel of rotary position embedding (Su et al., 2021): rows are divided among threads; a
// table of cosines and sines is used for all consecutive rows of one position (the heads of one
// token).
#include "core/ops/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/devices/cpu/registry.h"
#include "core/devices/iteration_space.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/devices/cpu/attention/rotary.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/devices/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

// Computes cosine[i], sine[i] of position·frequency[i]. The angle is reduced in double, so that
// large positions are as exact as small ones.
void RotaryTable(int64_t pairs, const double* frequency, int32_t position, float* cosine,
                 float* sine) {
  constexpr double kFullTurn = 2.0 * std::numbers::pi;
  const hn::ScalableTag<double> doubles;
  const hn::Rebind<float, decltype(doubles)> floats;
  const auto step = static_cast<int64_t>(hn::Lanes(doubles));
  HWY_ALIGN double angle[HWY_MAX_BYTES / sizeof(double)] = {};
  HWY_ALIGN float cosines[HWY_MAX_BYTES / sizeof(float)], sines[HWY_MAX_BYTES / sizeof(float)];
  for (int64_t begin = 0; begin < pairs; begin += step) {
    const int64_t count = std::min(step, pairs - begin);
    std::copy_n(frequency + begin, count, angle);
    const auto whole =
        hn::Mul(hn::Load(doubles, angle), hn::Set(doubles, static_cast<double>(position)));
    const auto turns = hn::Round(hn::Mul(whole, hn::Set(doubles, 1.0 / kFullTurn)));
    const auto rest =
        hn::DemoteTo(floats, hn::NegMulAdd(turns, hn::Set(doubles, kFullTurn), whole));
    hn::Store(hn::Cos(floats, rest), floats, cosines);
    hn::Store(hn::Sin(floats, rest), floats, sines);
    std::copy_n(cosines, count, cosine + begin);
    std::copy_n(sines, count, sine + begin);
  }
}

struct Pair {
  Vec first, second;
};
HWY_INLINE Pair rotated(Pair pair, Vec cosine, Vec sine) {
  return {hn::NegMulAdd(pair.second, sine, hn::Mul(pair.first, cosine)),
          hn::MulAdd(pair.first, sine, hn::Mul(pair.second, cosine))};
}

template <typename T>
void rotate_halves(int64_t pairs, const float* cosine, const float* sine, const T* x, T* y) {
  for (int64_t i = 0; i < pairs; i += lanes()) {
    const int64_t left = pairs - i;
    const Pair pair = rotated({load(x + i, left), load(x + pairs + i, left)},
                              load(cosine + i, left), load(sine + i, left));
    store(pair.first, y + i, left);
    store(pair.second, y + pairs + i, left);
  }
}

template <typename T>
void rotate_interleaved(int64_t pairs, const float* cosine, const float* sine, const T* x, T* y) {
  HWY_ALIGN float buffer[2 * HWY_MAX_BYTES / sizeof(float)];
  for (int64_t i = 0; i < pairs; i += lanes()) {
    const int64_t left = pairs - i;
    const int64_t second_left = std::max<int64_t>(0, 2 * left - lanes());
    hn::Store(load(x + 2 * i, 2 * left), kFloats, buffer);
    hn::Store(load(x + 2 * i + lanes(), second_left), kFloats, buffer + lanes());
    Vec first, second;
    hn::LoadInterleaved2(kFloats, buffer, first, second);
    const Pair pair = rotated({first, second}, load(cosine + i, left), load(sine + i, left));
    hn::StoreInterleaved2(pair.first, pair.second, kFloats, buffer);
    store(hn::Load(kFloats, buffer), y + 2 * i, 2 * left);
    store(hn::Load(kFloats, buffer + lanes()), y + 2 * i + lanes(), second_left);
  }
}

template <typename T>
void rotate_rows(bool interleaved, int64_t pairs, const float* cosine, const float* sine,
                 const void* operand, void* result, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const x = static_cast<const T*>(operand) + row * 2 * pairs;
    T* const y = static_cast<T*>(result) + row * 2 * pairs;
    interleaved ? rotate_interleaved(pairs, cosine, sine, x, y)
                : rotate_halves(pairs, cosine, sine, x, y);
  }
}

// Rotates rows of 2·pairs elements of `dtype` (f32 or bf16) by a table; y may be x.
void RotaryRows(DType dtype, bool interleaved, int64_t pairs, const float* cosine,
                const float* sine, const void* x, void* y, int64_t begin, int64_t end) {
  dtype == DType::kBF16 ? rotate_rows<BFloat16>(interleaved, pairs, cosine, sine, x, y, begin, end)
                        : rotate_rows<float>(interleaved, pairs, cosine, sine, x, y, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(RotaryTable);
HWY_EXPORT(RotaryRows);

class RotaryKernel final : public HostKernel {
 public:
  RotaryKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : dtype_(vector_dtype(graph, node, 0)),
        pairs_(graph.type(node.inputs[0]).axes.back().size / 2),
        count_(graph.type(node.inputs[0]).elements() / (2 * pairs_)),
        pool_(pool) {
    const RotaryAttributes rotary(node.attributes);
    interleaved_ = rotary.interleaved;
    const double min = rotary.min_timescale, max = rotary.max_timescale;
    const double sign = rotary.inverse ? -1.0 : 1.0;
    for (int64_t i = 0; i < pairs_; ++i) {
      const double exponent = static_cast<double>(i) / static_cast<double>(pairs_);
      frequency_.push_back(sign * stretched(1.0 / (min * std::pow(max / min, exponent)),
                                            static_cast<double>(i), rotary.stretch));
    }
    for (size_t i = 0; i < rotary.divisors.size(); ++i) frequency_[i] /= rotary.divisors[i];
    set_steps(graph.type(node.inputs[0]), graph.type(node.inputs[1]));
  }

  // Returns the bytes of a table of cosines and sines for every thread.
  int64_t scratch_bytes() const override {
    return float_bytes(2 * pool_.size() * padded_floats(pairs_));
  }
  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void run(const HostArgs& args) override {
    const int32_t* positions = input_as<int32_t>(args, 1);
    const int64_t grain = std::max<int64_t>(1, 2048 / pairs_);
    pool_.parallel(count_, grain, [&](Range range, int thread) {
      float* cosine = scratch_floats(args) + 2 * thread * padded_floats(pairs_);
      float* sine = cosine + padded_floats(pairs_);
      for (int64_t begin = range.begin; begin < range.end;) {
        const int32_t position = positions[position_index(begin)];
        int64_t end = begin + 1;
        while (end < range.end && positions[position_index(end)] == position) ++end;
        HWY_DYNAMIC_DISPATCH(RotaryTable)
        (pairs_, frequency_.data(), position, cosine, sine);
        HWY_DYNAMIC_DISPATCH(RotaryRows)
        (dtype_, interleaved_, pairs_, cosine, sine, args.inputs[0], args.outputs[0], begin, end);
        begin = end;
      }
    });
  }

 private:
  // A row axis of x, innermost first, and its stride in the positions.
  struct RowAxis {
    int64_t size, step;
  };

  // Applies a scaling of low frequencies, which extends the context.
  static double stretched(double frequency, double pair,
                          const std::optional<RotaryStretch>& stretch) {
    if (!stretch) return frequency;
    const auto& [factor, low, high, length, index_step, divisors] = *stretch;
    const double turns = frequency * length / (2.0 * std::numbers::pi) + pair * index_step;
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    return frequency * (kept + (1.0 - kept) / factor);
  }

  void set_steps(const Type& x, const Type& positions) {
    const Strides strides = strides_in(positions, positions.axes);
    for (size_t i = x.axes.size() - 1; i-- > 0;) {
      const int64_t at = positions.find(x.axes[i].name);
      rows_.push_back({x.axes[i].size, at < 0 ? 0 : strides[static_cast<size_t>(at)]});
    }
  }

  int64_t position_index(int64_t row) const {
    int64_t index = 0;
    for (const RowAxis& axis : rows_) {
      index += row % axis.size * axis.step;
      row /= axis.size;
    }
    return index;
  }

  DType dtype_;
  int64_t pairs_, count_;
  bool interleaved_;
  std::vector<double> frequency_;
  std::vector<RowAxis> rows_;
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterRotary{kRotaryOp, make_kernel<RotaryKernel>};

}  // namespace
}  // namespace tessera
#endif  // HWY_ONCE
