// SPDX-License-Identifier: Apache-2.0
// Matrix products by Tessera's own kernels (product.cu, fp8_product.cu), for shapes and systems
// that cuBLASLt cannot serve: make_reference_product() of plugins/cuda/gemm/product.h.
#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/gemm/fp8_parameters.h"
#include "plugins/cuda/gemm/product.h"

namespace tessera::cuda {
namespace {

constexpr int kSmallTile = 32;

int64_t tiles_of(const GemmShape& shape, int64_t tile) {
  return ((shape.m + tile - 1) / tile) * ((shape.n + tile - 1) / tile);
}

// Whether every 16-byte piece of a line is one of memory, if its first address is.
bool lines_aligned(const MatrixLayout& layout, int64_t stride, int64_t element_bytes) {
  return layout.leading * element_bytes % 16 == 0 && stride * element_bytes % 16 == 0;
}

class ReferenceProduct final : public Product {
 public:
  ReferenceProduct(Context& context, const ProductShape& shape)
      : context_(context), fp8_(shape.fp8) {
    const GemmShape& s = shape.matrices;
    CHECK(std::max({s.m, s.n, s.k}) <= std::numeric_limits<int32_t>::max(), "{}", shape.text());
    CHECK(!fp8_ || (s.k | s.a.leading | s.b.leading) % 16 == 0, "{}", shape.text());
    const bool is_bf16 = fp8_ || s.input == DType::kBF16;
    // Large tiles read less, if there are enough of them to keep the GPU busy.
    const int large = is_bf16 ? 128 : 64;
    const bool is_large = std::min(s.m, s.n) > large / 2 &&
                          shape.batches * tiles_of(s, large) >= context.multiprocessors();
    const int tile = is_large ? large : kSmallTile;
    shape_ = {.blocks_x = tiles_of(s, tile),
              .blocks_z = std::min(shape.batches, kMostBatchBlocks),
              .threads = is_large  ? 256
                         : is_bf16 ? 32
                                   : 64};
    function_ =
        fp8_ ? context.function("fp8_product", fmt::format("product_fp8_{}", tile))
             : context.function("product", fmt::format("product_{}_{}{}_{}", dtype_name(s.input),
                                                       s.a.transposed ? 't' : 'n',
                                                       s.b.transposed ? 't' : 'n', tile));
    set_parameters(shape);
  }

  void enqueue(CUstream stream, const ProductOperands& operands) override {
    ProductParameters p = p_;
    const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
    p.a = pointer(operands.a), p.b = pointer(operands.b), p.c = pointer(operands.c);
    p.bias = pointer(operands.bias), p.slopes = pointer(operands.slopes);
    p.addend = pointer(operands.addend), p.saved = pointer(operands.saved);
    p.a_aligned &= operands.a % 16 == 0;
    p.b_aligned &= operands.b % 16 == 0;
    p.c_is_plain &= operands.c % 16 == 0;
    if (!fp8_) return launch(context_, stream, function_, shape_, p);
    const Fp8Parameters of_codes = {
        .product = p,
        .inverse_scales = reinterpret_cast<const float*>(operands.inverse_scales),
        .a = format_of(fp8_->a),
        .b = format_of(fp8_->b)};
    launch(context_, stream, function_, shape_, of_codes);
  }

 private:
  void set_parameters(const ProductShape& shape) {
    const GemmShape& s = shape.matrices;
    const int64_t input_bytes = shape.input_bytes(), output_bytes = dtype_bytes(s.output);
    p_.batches = shape.batches;
    p_.a_stride = shape.a_stride, p_.b_stride = shape.b_stride, p_.c_stride = shape.c_stride;
    p_.a_leading = s.a.leading, p_.b_leading = s.b.leading, p_.c_leading = s.c_leading;
    p_.m = static_cast<int32_t>(s.m);
    p_.n = static_cast<int32_t>(s.n);
    p_.k = static_cast<int32_t>(s.k);
    p_.activation = shape.epilogue.activation;
    p_.c_is_bf16 = s.output == DType::kBF16;
    p_.a_aligned = lines_aligned(s.a, shape.a_stride, input_bytes);
    p_.b_aligned = lines_aligned(s.b, shape.b_stride, input_bytes);
    p_.c_is_plain = shape.epilogue.empty() && s.n % 8 == 0 &&
                    lines_aligned({s.c_leading, false}, shape.c_stride, output_bytes);
  }

  Context& context_;
  std::optional<Fp8Formats> fp8_;
  ProductParameters p_ = {};
  LaunchShape shape_;
  Function function_;
};

}  // namespace

std::unique_ptr<Product> make_reference_product(Context& context, const ProductShape& shape) {
  return std::make_unique<ReferenceProduct>(context, shape);
}

}  // namespace tessera::cuda
