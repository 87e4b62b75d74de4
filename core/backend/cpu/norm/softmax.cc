// SPDX-License-Identifier: Apache-2.0
// The kernels of softmax and softmax_grad, dx = y·(dy - Σ y·dy): rows are divided among threads.

#include <algorithm>
#include <limits>

#include "core/backend/cpu/registry.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/backend/cpu/norm/softmax.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/backend/cpu/simd-inl.h"
#include "core/ops/norm.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

// Exponentials are computed twice instead of being stored, which would round them to the dtype.
template <typename T>
void softmax_row(int64_t width, const T* x, T* y) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Vec maxima = splat(kLowest);
  for (int64_t i = 0; i < width; i += lanes())
    maxima = hn::Max(maxima, load(x + i, width - i, kLowest));
  const Vec maximum = splat(max_of(maxima));
  const Vec sum = sum_over(width, [&](int64_t i, int64_t left) HWY_ATTR {
    return falling_exp(hn::Sub(load(x + i, left, kLowest), maximum));
  });
  const Vec share = splat(1.0f / sum_of(sum));
  for (int64_t i = 0; i < width; i += lanes()) {
    const Vec power = falling_exp(hn::Sub(load(x + i, width - i), maximum));
    store(hn::Mul(power, share), y + i, width - i);
  }
}

template <typename T>
void softmax_grad_row(int64_t width, const T* y, const T* dy, T* dx) {
  const Vec along = splat(sum_of(sum_over(width, [&](int64_t i, int64_t left) HWY_ATTR {
    return hn::Mul(load(y + i, left), load(dy + i, left));
  })));
  for (int64_t i = 0; i < width; i += lanes()) {
    const int64_t left = width - i;
    store(hn::Mul(load(y + i, left), hn::Sub(load(dy + i, left), along)), dx + i, left);
  }
}

template <typename T>
void softmax_rows_as(int64_t width, const T* x, T* y, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) softmax_row(width, x + row * width, y + row * width);
}

template <typename T>
void softmax_grad_rows_as(int64_t width, const T* y, const T* dy, T* dx, int64_t begin,
                          int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    softmax_grad_row(width, y + row * width, dy + row * width, dx + row * width);
}

void SoftmaxRows(DType dtype, int64_t width, const void* x, void* y, int64_t begin, int64_t end) {
  if (dtype == DType::kBF16) {
    softmax_rows_as(width, static_cast<const BFloat16*>(x), static_cast<BFloat16*>(y), begin, end);
  } else {
    softmax_rows_as(width, static_cast<const float*>(x), static_cast<float*>(y), begin, end);
  }
}

void SoftmaxGradRows(DType dtype, int64_t width, const void* y, const void* dy, void* dx,
                     int64_t begin, int64_t end) {
  if (dtype == DType::kBF16) {
    softmax_grad_rows_as(width, static_cast<const BFloat16*>(y), static_cast<const BFloat16*>(dy),
                         static_cast<BFloat16*>(dx), begin, end);
  } else {
    softmax_grad_rows_as(width, static_cast<const float*>(y), static_cast<const float*>(dy),
                         static_cast<float*>(dx), begin, end);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(SoftmaxRows);
HWY_EXPORT(SoftmaxGradRows);

class SoftmaxKernel final : public HostKernel {
 public:
  SoftmaxKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : dtype_(vector_dtype(graph, node, 0)),
        width_(graph.type(node.inputs[0]).axes.back().size),
        count_(graph.type(node.inputs[0]).elements() / width_),
        gradient_(node.inputs.size() == 2),
        pool_(pool) {}

  bool may_overwrite(int64_t, int64_t) const override { return true; }

  void run(const HostArgs& args) override {
    pool_.parallel(count_, std::max<int64_t>(1, 4096 / width_), [&](Range range, int) {
      if (gradient_) {
        HWY_DYNAMIC_DISPATCH(SoftmaxGradRows)
        (dtype_, width_, args.inputs[0], args.inputs[1], args.outputs[0], range.begin, range.end);
      } else {
        HWY_DYNAMIC_DISPATCH(SoftmaxRows)
        (dtype_, width_, args.inputs[0], args.outputs[0], range.begin, range.end);
      }
    });
  }

 private:
  DType dtype_;
  int64_t width_, count_;
  bool gradient_;
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterSoftmax{{&kSoftmaxOp, &kSoftmaxGradOp}, make_kernel<SoftmaxKernel>};

}  // namespace
}  // namespace tessera
#endif  // HWY_ONCE
