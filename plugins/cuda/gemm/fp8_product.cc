// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/gemm/fp8_product.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/devices/cpu/gemm/gemm.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/gemm/fp8_parameters.h"
#include "plugins/cuda/gemm/make_product.h"
#include "plugins/cuda/kernels/movement.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kScratchAlignment = 256, kCodes = 16;

// Rounds one operand of all products of the batch.
class Quantizer {
 public:
  // `layout` is that of rows × depth: A, or the transpose of B.
  Quantizer(Context& context, const ProductShape& shape, MatrixLayout layout, int64_t stride,
            int64_t rows, Float8 format)
      : context_(&context) {
    const DType dtype = shape.matrices.input;
    const int64_t line_bytes = dtype_bytes(dtype);
    // All products may have the same operand.
    p_.batches = stride == 0 ? 1 : shape.batches;
    p_.rows = static_cast<int32_t>(rows), p_.depth = static_cast<int32_t>(shape.matrices.k);
    p_.padded_depth = static_cast<int32_t>(rounded_up(shape.matrices.k, kCodes));
    p_.from_stride = stride, p_.from_leading = layout.leading;
    p_.to_stride = stride == 0 ? 0 : rows * p_.padded_depth;
    p_.format = format_of(format);
    p_.aligned = layout.leading * line_bytes % 16 == 0 && stride * line_bytes % 16 == 0;
    if (layout.transposed) {
      shape_ = {
          .blocks_x = ceil_div(rows, kQuantizeRows) * ceil_div(p_.padded_depth, kQuantizeDepth),
          .blocks_z = std::min(p_.batches, kMostBatchBlocks),
          .threads = 256};
    } else {
      p_.lanes_shift = lanes_shift_of(p_.padded_depth / kCodes);
      shape_ = elementwise_shape(context, p_.batches * rows << p_.lanes_shift);
    }
    function_ = context.function("fp8_product", fmt::format("fp8_quantize_{}_{}", dtype_name(dtype),
                                                            layout.transposed ? 't' : 'n'));
  }

  int64_t bytes() const { return p_.batches * p_.rows * p_.padded_depth; }
  int64_t stride() const { return p_.to_stride; }
  int64_t padded_depth() const { return p_.padded_depth; }

  void enqueue(CUstream stream, CUdeviceptr from, CUdeviceptr amax, CUdeviceptr to,
               CUdeviceptr inverse_scale) const {
    QuantizeParameters p = p_;
    p.from = reinterpret_cast<const void*>(from);
    p.amax = reinterpret_cast<const void*>(amax);
    p.to = reinterpret_cast<uint8_t*>(to);
    p.inverse_scale = reinterpret_cast<float*>(inverse_scale);
    p.aligned &= from % 16 == 0;
    launch(*context_, stream, function_, shape_, p);
  }

 private:
  Context* context_;
  Function function_;
  LaunchShape shape_;
  QuantizeParameters p_ = {};
};

MatrixLayout transpose_of(MatrixLayout layout) {
  layout.transposed = !layout.transposed;
  return layout;
}

class Fp8Product final : public Product {
 public:
  Fp8Product(Context& context, const ProductShape& shape, const Fp8Formats& formats,
             const ProductSettings& settings)
      : a_(context, shape, shape.matrices.a, shape.a_stride, shape.matrices.m, formats.a),
        b_(context, shape, transpose_of(shape.matrices.b), shape.b_stride, shape.matrices.n,
           formats.b) {
    ProductShape of_codes = shape;
    of_codes.fp8 = formats;
    of_codes.matrices.k = a_.padded_depth();  // Zeros add nothing.
    of_codes.matrices.a = {a_.padded_depth(), false};
    of_codes.matrices.b = {b_.padded_depth(), true};
    of_codes.a_stride = a_.stride(), of_codes.b_stride = b_.stride();
    product_ = make_product(context, of_codes, settings);
    b_begin_ = kScratchAlignment + rounded_up(a_.bytes(), kScratchAlignment);
    product_begin_ = b_begin_ + rounded_up(b_.bytes(), kScratchAlignment);
  }

  std::string_view implementation() const override { return product_->implementation(); }
  int64_t scratch_bytes() const override { return product_begin_ + product_->scratch_bytes(); }

  void enqueue(CUstream stream, const ProductOperands& operands) override {
    const auto at = [&](int64_t offset) {
      return operands.scratch + static_cast<CUdeviceptr>(offset);
    };
    ProductOperands of_codes = operands;
    of_codes.inverse_scales = at(0);
    of_codes.a = at(kScratchAlignment), of_codes.b = at(b_begin_);
    of_codes.scratch = at(product_begin_);
    a_.enqueue(stream, operands.a, operands.a_amax, of_codes.a, at(0));
    b_.enqueue(stream, operands.b, operands.b_amax, of_codes.b, at(kScaleStride * sizeof(float)));
    product_->enqueue(stream, of_codes);
  }

 private:
  Quantizer a_, b_;
  std::unique_ptr<Product> product_;
  int64_t b_begin_ = 0, product_begin_ = 0;
};

}  // namespace

std::unique_ptr<Product> make_fp8_product(Context& context, const ProductShape& shape,
                                          const Fp8Formats& formats,
                                          const ProductSettings& settings) {
  return std::make_unique<Fp8Product>(context, shape, formats, settings);
}

}  // namespace tessera::cuda
