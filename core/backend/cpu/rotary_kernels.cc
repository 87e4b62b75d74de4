// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/rotary_kernels.h"

#include <algorithm>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/rotary_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

void RotaryTableLoop(int64_t pairs, const double* frequency, int32_t position, float* cosine,
                     float* sine) {
  constexpr double kTurn = 2.0 * std::numbers::pi;
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
    const auto turns = hn::Round(hn::Mul(whole, hn::Set(doubles, 1.0 / kTurn)));
    const auto rest = hn::DemoteTo(floats, hn::NegMulAdd(turns, hn::Set(doubles, kTurn), whole));
    hn::Store(hn::Cos(floats, rest), floats, cosines);
    hn::Store(hn::Sin(floats, rest), floats, sines);
    std::copy_n(cosines, count, cosine + begin);
    std::copy_n(sines, count, sine + begin);
  }
}

struct Pair {
  Vec first, second;
};
HWY_INLINE Pair turned(Pair pair, Vec cosine, Vec sine) {
  return {hn::NegMulAdd(pair.second, sine, hn::Mul(pair.first, cosine)),
          hn::MulAdd(pair.first, sine, hn::Mul(pair.second, cosine))};
}

template <typename T>
void turn_halves(int64_t pairs, const float* cosine, const float* sine, const T* x, T* y) {
  for (int64_t i = 0; i < pairs; i += lanes()) {
    const int64_t left = pairs - i;
    const Pair pair = turned({load(x + i, left), load(x + pairs + i, left)}, load(cosine + i, left),
                             load(sine + i, left));
    store(pair.first, y + i, left);
    store(pair.second, y + pairs + i, left);
  }
}

template <typename T>
void turn_interleaved(int64_t pairs, const float* cosine, const float* sine, const T* x, T* y) {
  HWY_ALIGN float buffer[2 * HWY_MAX_BYTES / sizeof(float)];
  for (int64_t i = 0; i < pairs; i += lanes()) {
    const int64_t left = pairs - i;
    const int64_t second_left = std::max<int64_t>(0, 2 * left - lanes());
    hn::Store(load(x + 2 * i, 2 * left), kFloats, buffer);
    hn::Store(load(x + 2 * i + lanes(), second_left), kFloats, buffer + lanes());
    Vec first, second;
    hn::LoadInterleaved2(kFloats, buffer, first, second);
    const Pair pair = turned({first, second}, load(cosine + i, left), load(sine + i, left));
    hn::StoreInterleaved2(pair.first, pair.second, kFloats, buffer);
    store(hn::Load(kFloats, buffer), y + 2 * i, 2 * left);
    store(hn::Load(kFloats, buffer + lanes()), y + 2 * i + lanes(), second_left);
  }
}

template <typename T>
void rotary_rows_as(bool interleaved, int64_t pairs, const float* cosine, const float* sine,
                    const T* x, T* y, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * 2 * pairs;
    if (interleaved) {
      turn_interleaved(pairs, cosine, sine, x + at, y + at);
    } else {
      turn_halves(pairs, cosine, sine, x + at, y + at);
    }
  }
}

void RotaryLoop(DType dtype, bool interleaved, int64_t pairs, const float* cosine,
                const float* sine, const void* x, void* y, int64_t begin, int64_t end) {
  if (dtype == DType::kBF16) {
    rotary_rows_as(interleaved, pairs, cosine, sine, static_cast<const BFloat16*>(x),
                   static_cast<BFloat16*>(y), begin, end);
  } else {
    rotary_rows_as(interleaved, pairs, cosine, sine, static_cast<const float*>(x),
                   static_cast<float*>(y), begin, end);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(RotaryTableLoop);
HWY_EXPORT(RotaryLoop);
}  // namespace

void rotary_table(int64_t pairs, const double* frequency, int32_t position, float* cosine,
                  float* sine) {
  HWY_DYNAMIC_DISPATCH(RotaryTableLoop)(pairs, frequency, position, cosine, sine);
}

void rotary_rows(DType dtype, bool interleaved, int64_t pairs, const float* cosine,
                 const float* sine, const void* x, void* y, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RotaryLoop)
  (dtype, interleaved, pairs, cosine, sine, x, y, begin, end);
}

}  // namespace tessera
#endif  // HWY_ONCE
