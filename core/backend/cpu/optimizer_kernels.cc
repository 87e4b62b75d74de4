// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/optimizer_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/optimizer_kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

void AdamLoop(const AdamStep& step, const AdamBuffers& buffers, int64_t begin, int64_t end) {
  const Vec decay1 = splat(step.decay1), fresh1 = splat(step.fresh1);
  const Vec decay2 = splat(step.decay2), fresh2 = splat(step.fresh2);
  const Vec unbias1 = splat(step.unbias1), unbias2 = splat(step.unbias2);
  const Vec epsilon = splat(step.epsilon), epsilon_root = splat(step.epsilon_root);
  const Vec weight_decay = splat(step.weight_decay), rate = splat(step.learning_rate);
  const Vec gradient_scale = splat(step.gradient_scale);
  for (int64_t i = begin; i < end; i += lanes()) {
    const int64_t left = end - i;
    const Vec gradient = hn::Mul(load(buffers.gradient + i, left), gradient_scale);
    const Vec parameter = load(buffers.parameter + i, left);
    const Vec first = hn::MulAdd(load(buffers.first + i, left), decay1, hn::Mul(gradient, fresh1));
    const Vec second = hn::MulAdd(load(buffers.second + i, left), decay2,
                                  hn::Mul(hn::Mul(gradient, gradient), fresh2));
    const Vec deviation = hn::Sqrt(hn::MulAdd(second, unbias2, epsilon_root));
    const Vec direction = hn::Div(hn::Mul(first, unbias1), hn::Add(deviation, epsilon));
    const Vec update = hn::MulAdd(parameter, weight_decay, direction);
    store(hn::NegMulAdd(update, rate, parameter), buffers.next_parameter + i, left);
    store(first, buffers.next_first + i, left);
    store(second, buffers.next_second + i, left);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {
HWY_EXPORT(AdamLoop);
}  // namespace

void adam_elements(const AdamStep& step, const AdamBuffers& buffers, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(AdamLoop)(step, buffers, begin, end);
}

}  // namespace tessera
#endif  // HWY_ONCE
