// SPDX-License-Identifier: Apache-2.0
// The kernels of RMSNorm (Zhang and Sennrich, 2019), LayerNorm (Ba et al., 2016), softmax and their
// gradients: rows are divided among threads. The gradients of the weights are summed over blocks of
// rows whose number depends on the sizes only, and the blocks are added in order, so that the bits
// do not depend on the number of threads.
#include "core/ops/norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/devices/cpu/loop_arguments.h"
#include "core/devices/cpu/registry.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/devices/cpu/norm.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/devices/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
void norm_row(const NormRows& rows, int64_t row) {
  const int64_t width = rows.width;
  const T* x = static_cast<const T*>(rows.x) + row * width;
  T* y = static_cast<T*>(rows.y) + row * width;
  const float inverse_width = 1.0f / static_cast<float>(width);

  float mean = 0.0f;
  if (rows.centered) {
    mean = inverse_width * sum_of(sum_over(width, [&](int64_t i, int64_t left)
                                                      HWY_ATTR { return load(x + i, left); }));
    rows.mean[row] = mean;
  }
  const Vec center = splat(mean);
  // Lanes beyond the row are loaded as the mean, so that they add 0.
  const Vec squares = sum_over(width, [&](int64_t i, int64_t left) HWY_ATTR {
    const Vec distance = hn::Sub(load(x + i, left, mean), center);
    return hn::Mul(distance, distance);
  });
  const float rstd = 1.0f / std::sqrt(sum_of(squares) * inverse_width + rows.epsilon);
  rows.rstd[row] = rstd;

  const Vec factor = splat(rstd);
  for (int64_t i = 0; i < width; i += lanes()) {
    const int64_t left = width - i;
    Vec value = hn::Mul(hn::Sub(load(x + i, left), center), factor);
    if (rows.scale != nullptr) value = hn::Mul(value, load(rows.scale + i, left));
    if (rows.bias != nullptr) value = hn::Add(value, load(rows.bias + i, left));
    store(value, y + i, left);
  }
}

template <typename T>
void norm_grad_row(const NormGradRows& rows, int64_t row, float* dscale, float* dbias) {
  const int64_t width = rows.width;
  const T* x = static_cast<const T*>(rows.x) + row * width;
  const T* cotangent = static_cast<const T*>(rows.cotangent) + row * width;
  T* dx = static_cast<T*>(rows.dx) + row * width;
  const Vec center = splat(rows.centered ? rows.mean[row] : 0.0f);
  const Vec rstd = splat(rows.rstd[row]);
  const float inverse_width = 1.0f / static_cast<float>(width);

  const auto scaled = [&](int64_t i, int64_t left) HWY_ATTR {
    const Vec dy = load(cotangent + i, left);
    return rows.scale == nullptr ? dy : hn::Mul(dy, load(rows.scale + i, left));
  };
  const auto normalized = [&](int64_t i, int64_t left) HWY_ATTR {
    return hn::Mul(hn::Sub(load(x + i, left), center), rstd);
  };
  const Vec projection =
      splat(inverse_width * sum_of(sum_over(width, [&](int64_t i, int64_t left) HWY_ATTR {
              return hn::Mul(scaled(i, left), normalized(i, left));
            })));
  const Vec mean = splat(rows.centered ? inverse_width * sum_of(sum_over(width, scaled)) : 0.0f);

  for (int64_t i = 0; i < width; i += lanes()) {
    const int64_t left = width - i;
    const Vec norm = normalized(i, left);
    const Vec dy = load(cotangent + i, left);
    const Vec inner = hn::Sub(hn::NegMulAdd(norm, projection, scaled(i, left)), mean);
    if (dscale != nullptr) store(hn::MulAdd(dy, norm, load(dscale + i, left)), dscale + i, left);
    if (dbias != nullptr) store(hn::Add(dy, load(dbias + i, left)), dbias + i, left);
    store(hn::Mul(inner, rstd), dx + i, left);
  }
}

// Computes out[i] = rows[0][i] + rows[1][i] + …, in that order; rows are `stride` apart.
template <typename T>
void add_rows(const float* rows, int64_t count, int64_t stride, int64_t width, void* out) {
  for (int64_t i = 0; i < width; i += lanes()) {
    const int64_t left = width - i;
    Vec sum = load(rows + i, left);
    for (int64_t row = 1; row < count; ++row)
      sum = hn::Add(sum, load(rows + row * stride + i, left));
    store(sum, static_cast<T*>(out) + i, left);
  }
}

void NormForward(const NormRows& rows, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    rows.dtype == DType::kBF16 ? norm_row<BFloat16>(rows, row) : norm_row<float>(rows, row);
}

void NormBackward(const NormGradRows& rows, int64_t begin, int64_t end, float* dscale,
                  float* dbias) {
  for (int64_t row = begin; row < end; ++row)
    rows.dtype == DType::kBF16 ? norm_grad_row<BFloat16>(rows, row, dscale, dbias)
                               : norm_grad_row<float>(rows, row, dscale, dbias);
}

void AddRows(const float* rows, int64_t count, int64_t stride, int64_t width, DType dtype,
             void* out) {
  dtype == DType::kBF16 ? add_rows<BFloat16>(rows, count, stride, width, out)
                        : add_rows<float>(rows, count, stride, width, out);
}

void WidenBf16(const BFloat16* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += lanes()) store(load(x + i, count - i), out + i, count - i);
}

// Exponentials are computed twice instead of being stored, which would round them to the dtype.
template <typename T>
void softmax_row(int64_t width, int64_t row, const void* operand, void* result) {
  const T* const x = static_cast<const T*>(operand) + row * width;
  T* const y = static_cast<T*>(result) + row * width;
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

// Computes dx = y·(dy - Σ y·dy).
template <typename T>
void softmax_grad_row(int64_t width, int64_t row, const void* output, const void* cotangent,
                      void* result) {
  const T* const y = static_cast<const T*>(output) + row * width;
  const T* const dy = static_cast<const T*>(cotangent) + row * width;
  T* const dx = static_cast<T*>(result) + row * width;
  const Vec along = splat(sum_of(sum_over(width, [&](int64_t i, int64_t left) HWY_ATTR {
    return hn::Mul(load(y + i, left), load(dy + i, left));
  })));
  for (int64_t i = 0; i < width; i += lanes()) {
    const int64_t left = width - i;
    store(hn::Mul(load(y + i, left), hn::Sub(load(dy + i, left), along)), dx + i, left);
  }
}

void SoftmaxRows(DType dtype, int64_t width, const void* x, void* y, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    dtype == DType::kBF16 ? softmax_row<BFloat16>(width, row, x, y)
                          : softmax_row<float>(width, row, x, y);
}

void SoftmaxGradRows(DType dtype, int64_t width, const void* y, const void* dy, void* dx,
                     int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    dtype == DType::kBF16 ? softmax_grad_row<BFloat16>(width, row, y, dy, dx)
                          : softmax_grad_row<float>(width, row, y, dy, dx);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(NormForward);
HWY_EXPORT(NormBackward);
HWY_EXPORT(AddRows);
HWY_EXPORT(WidenBf16);
HWY_EXPORT(SoftmaxRows);
HWY_EXPORT(SoftmaxGradRows);

// Writes x in f32 to out.
void widen(const void* x, DType dtype, int64_t count, float* out) {
  if (dtype == DType::kF32) {
    std::copy_n(static_cast<const float*>(x), count, out);
  } else {
    HWY_DYNAMIC_DISPATCH(WidenBf16)(static_cast<const BFloat16*>(x), count, out);
  }
}

constexpr int64_t kBlockElements = 8192;  // Fewest elements of a block of rows.
constexpr int64_t kMostBlocks = 64;

// Returns the fewest rows of a thread.
int64_t grain_of(int64_t width) { return std::max<int64_t>(1, 4096 / width); }

// The shape and attributes of the norms and their gradients.
struct NormShape : NormAttributes {
  NormShape(const Graph& graph, const Node& node)
      : NormAttributes(node.attributes),
        dtype(vector_dtype(graph, node, 0)),
        width(graph.type(node.inputs[0]).axes.back().size),
        count(graph.type(node.inputs[0]).elements() / width),
        weights(has_scale ? vector_dtype(graph, node, 1) : DType::kF32) {}
  // Returns the number of blocks of rows for sums over rows.
  int64_t blocks() const {
    const int64_t most = std::min(kMostBlocks, count);
    return std::clamp<int64_t>(count * width / kBlockElements, 1, std::max<int64_t>(most, 1));
  }

  DType dtype;
  int64_t width, count;
  DType weights;
};

class Norm final : public HostKernel {
 public:
  Norm(const Graph& graph, const Node& node, ThreadPool& pool) : shape_(graph, node), pool_(pool) {}

  int64_t scratch_bytes() const override { return float_bytes(2 * padded_floats(shape_.width)); }
  bool may_overwrite(int64_t output, int64_t input) const override {
    return output == 0 && input == 0;
  }

  void run(const HostArgs& args) override {
    float* scale = scratch_floats(args);
    float* bias = scale + padded_floats(shape_.width);
    if (shape_.has_scale) widen(args.inputs[1], shape_.weights, shape_.width, scale);
    if (shape_.has_bias) widen(args.inputs[2], shape_.weights, shape_.width, bias);
    const NormRows rows{.dtype = shape_.dtype,
                        .width = shape_.width,
                        .epsilon = static_cast<float>(shape_.epsilon),
                        .centered = shape_.centered,
                        .x = args.inputs[0],
                        .scale = shape_.has_scale ? scale : nullptr,
                        .bias = shape_.has_bias ? bias : nullptr,
                        .y = args.outputs[0],
                        .rstd = output_as<float>(args, 1),
                        .mean = shape_.centered ? output_as<float>(args, 2) : nullptr};
    pool_.parallel(shape_.count, grain_of(shape_.width), [&](Range range, int) {
      HWY_DYNAMIC_DISPATCH(NormForward)(rows, range.begin, range.end);
    });
  }

 private:
  NormShape shape_;
  ThreadPool& pool_;
};

class NormGrad final : public HostKernel {
 public:
  NormGrad(const Graph& graph, const Node& node, ThreadPool& pool)
      : shape_(graph, node), num_inputs_(node.inputs.size()), pool_(pool) {}

  // The scale, then the sums of every block of rows.
  int64_t scratch_bytes() const override {
    return float_bytes((1 + 2 * shape_.blocks()) * padded_floats(shape_.width));
  }
  bool may_overwrite(int64_t output, int64_t input) const override {
    return output == 0 && (input == 0 || input == static_cast<int64_t>(num_inputs_) - 1);
  }

  void run(const HostArgs& args) override {
    const int64_t width = padded_floats(shape_.width);
    const int64_t blocks = shape_.blocks();
    float* scale = scratch_floats(args);
    float* dscale = scale + width;
    float* dbias = dscale + width * blocks;
    const size_t statistics = shape_.has_scale ? 2 : 1;
    if (shape_.has_scale) widen(args.inputs[1], shape_.weights, shape_.width, scale);
    const NormGradRows rows{
        .dtype = shape_.dtype,
        .width = shape_.width,
        .centered = shape_.centered,
        .x = args.inputs[0],
        .cotangent = args.inputs[num_inputs_ - 1],
        .scale = shape_.has_scale ? scale : nullptr,
        .rstd = input_as<float>(args, statistics),
        .mean = shape_.centered ? input_as<float>(args, statistics + 1) : nullptr,
        .dx = args.outputs[0]};
    pool_.parallel(blocks, 1, [&](Range range, int) {
      for (int64_t block = range.begin; block < range.end; ++block) {
        float* const scale_sums = shape_.has_scale ? dscale + block * width : nullptr;
        float* const bias_sums = shape_.has_bias ? dbias + block * width : nullptr;
        if (scale_sums != nullptr) std::fill_n(scale_sums, width, 0.0f);
        if (bias_sums != nullptr) std::fill_n(bias_sums, width, 0.0f);
        const Range part = part_of(shape_.count, static_cast<int>(block), static_cast<int>(blocks));
        HWY_DYNAMIC_DISPATCH(NormBackward)
        (rows, part.begin, part.end, scale_sums, bias_sums);
      }
    });
    if (shape_.has_scale) add(dscale, blocks, args.outputs[1]);
    if (shape_.has_bias) add(dbias, blocks, args.outputs[2]);
  }

 private:
  void add(const float* parts, int64_t blocks, std::byte* out) {
    HWY_DYNAMIC_DISPATCH(AddRows)
    (parts, blocks, padded_floats(shape_.width), shape_.width, shape_.weights, out);
  }

  NormShape shape_;
  size_t num_inputs_;
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterNorm{{&kRmsNormOp, &kLayerNormOp}, make_kernel<Norm>};
const KernelRegistrar kRegisterNormGrad{{&kRmsNormGradOp, &kLayerNormGradOp},
                                        make_kernel<NormGrad>};

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
    pool_.parallel(count_, grain_of(width_), [&](Range range, int) {
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
