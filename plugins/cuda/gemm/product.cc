// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/gemm/product.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/gemm/cublaslt.h"

namespace tessera::cuda {
namespace {

constexpr const char* kGemmVariable = "TESSERA_CUDA_GEMM";

int64_t matrix_extent(const MatrixLayout& layout, int64_t rows, int64_t columns) {
  if (rows == 0 || columns == 0) return 0;
  const int64_t lines = layout.transposed ? columns : rows;
  return (lines - 1) * layout.leading + (layout.transposed ? rows : columns);
}

int64_t batch_extent(int64_t matrix, int64_t stride, int64_t batches) {
  return batches == 0 || matrix == 0 ? 0 : (batches - 1) * stride + matrix;
}

std::string epilogue_text(const Epilogue& epilogue) {
  constexpr std::string_view kNames[] = {"none", "gelu", "silu", "gelu_gradient", "silu_gradient"};
  std::string text(kNames[static_cast<size_t>(epilogue.activation)]);
  if (epilogue.bias) text += ",bias";
  if (epilogue.saves_operand) text += ",saved";
  if (epilogue.adds) text += ",adds";
  return text;
}

// A product, then its epilogue as a pass of its own.
class PlainProduct final : public Product {
 public:
  PlainProduct(Context& context, const ProductShape& shape, std::unique_ptr<Product> product)
      : context_(context),
        product_(std::move(product)),
        adds_(shape.epilogue.adds),
        function_(context.function("product", "product_epilogue")) {
    const GemmShape& s = shape.matrices;
    // The product lies behind its own scratch, for C may be what it is added to.
    own_scratch_ = (product_->scratch_bytes() + 255) / 256 * 256;
    if (adds_) sum_bytes_ = shape.c_extent() * dtype_bytes(s.output);
    p_.batches = shape.batches;
    p_.c_stride = shape.c_stride, p_.c_leading = s.c_leading;
    p_.m = static_cast<int32_t>(s.m), p_.n = static_cast<int32_t>(s.n);
    p_.activation = shape.epilogue.activation;
    p_.c_is_bf16 = s.output == DType::kBF16;
    shape_ = elementwise_shape(context, shape.batches * s.m * s.n);
  }

  int64_t scratch_bytes() const override { return own_scratch_ + sum_bytes_; }

  void enqueue(CUstream stream, const ProductOperands& operands) override {
    ProductOperands bare = {
        .a = operands.a, .b = operands.b, .c = operands.c, .scratch = operands.scratch};
    const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
    ProductParameters p = p_;
    if (adds_) bare.c = operands.scratch + static_cast<CUdeviceptr>(own_scratch_);
    p.a = pointer(bare.c), p.c = pointer(operands.c);
    p.bias = pointer(operands.bias), p.slopes = pointer(operands.slopes);
    p.addend = pointer(operands.addend), p.saved = pointer(operands.saved);
    product_->enqueue(stream, bare);
    launch(context_, stream, function_, shape_, p);
  }

 private:
  Context& context_;
  std::unique_ptr<Product> product_;
  bool adds_;
  Function function_;
  LaunchShape shape_;
  ProductParameters p_ = {};
  int64_t own_scratch_ = 0, sum_bytes_ = 0;
};

void check_epilogue(const ProductShape& shape) {
  const Epilogue& epilogue = shape.epilogue;
  const bool forward =
      epilogue.activation == Activation::kGelu || epilogue.activation == Activation::kSilu;
  CHECK(!epilogue.saves_operand || forward, "{}", shape.text());
  CHECK(!epilogue.adds || epilogue == Epilogue{.adds = true}, "{}", shape.text());
}

std::unique_ptr<Product> fused_product(Context& context, const ProductShape& shape,
                                       const ProductSettings& settings, bool cublaslt) {
  if (cublaslt) return make_cublaslt_product(context, shape, settings);
  return make_reference_product(context, shape);
}

}  // namespace

int64_t ProductShape::a_extent() const {
  return batch_extent(matrix_extent(matrices.a, matrices.m, matrices.k), a_stride, batches);
}
int64_t ProductShape::b_extent() const {
  return batch_extent(matrix_extent(matrices.b, matrices.k, matrices.n), b_stride, batches);
}
int64_t ProductShape::c_extent() const {
  return batch_extent(matrix_extent({matrices.c_leading, false}, matrices.m, matrices.n), c_stride,
                      batches);
}

std::string ProductShape::text() const {
  const GemmShape& s = matrices;
  return fmt::format(
      "{}->{} m={} n={} k={} a={}{} b={}{} c={} batches={} strides={},{},{} "
      "epilogue={}",
      dtype_name(s.input), dtype_name(s.output), s.m, s.n, s.k, s.a.leading,
      s.a.transposed ? 't' : 'n', s.b.leading, s.b.transposed ? 't' : 'n', s.c_leading, batches,
      a_stride, b_stride, c_stride, epilogue_text(epilogue));
}

ProductSettings product_settings() {
  ProductSettings settings;
  const char* const variable = std::getenv(kGemmVariable);
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    if (word == "reference")
      settings.kind = ProductSettings::Kind::kReference;
    else if (word == "cublaslt")
      settings.kind = ProductSettings::Kind::kCublasLt;
    else if (word == "plain")
      settings.plain = true;
    else if (word == "untimed")
      settings.untimed = true;
    else
      fail(
          "{}: unknown word '{}'{}; expected reference or cublaslt, plain, untimed, separated by "
          "commas",
          kGemmVariable, word,
          did_you_mean(std::string(word), {"reference", "cublaslt", "plain", "untimed"}));
  }
  return settings;
}

std::unique_ptr<Product> make_product(Context& context, const ProductShape& shape,
                                      const ProductSettings& settings) {
  check_epilogue(shape);
  bool cublaslt = settings.kind != ProductSettings::Kind::kReference;
  if (cublaslt) {
    const auto& handle = context.part<CublasLtHandle>();
    cublaslt = handle.library() != nullptr;
    if (!cublaslt && settings.kind == ProductSettings::Kind::kCublasLt)
      fail("{}=cublaslt: {}; install the CUDA toolkit's cuBLAS, or use {}=reference", kGemmVariable,
           handle.why_not(), kGemmVariable);
  }
  if (shape.epilogue.empty() || !settings.plain)
    if (auto product = fused_product(context, shape, settings, cublaslt)) return product;
  ProductShape bare = shape;
  bare.epilogue = {};
  std::unique_ptr<Product> product;
  if (!shape.epilogue.empty()) product = fused_product(context, bare, settings, cublaslt);
  // The library has no algorithm for this shape, or the product is empty.
  if (!product) return make_reference_product(context, shape);
  return std::make_unique<PlainProduct>(context, shape, std::move(product));
}

void fill_with_random(Context& context, CUstream stream, CUdeviceptr to, int64_t elements,
                      DType dtype) {
  launch(context, stream, context.function("product", "product_fill"),
         elementwise_shape(context, elements), to, elements, dtype == DType::kBF16);
}

std::string describe_products(Context& context) {
  if (product_settings().kind == ProductSettings::Kind::kReference)
    return fmt::format("matrix products by own kernels ({}=reference)", kGemmVariable);
  const auto& handle = context.part<CublasLtHandle>();
  if (handle.library() == nullptr)
    return fmt::format("matrix products by own kernels ({})", handle.why_not());
  return fmt::format("matrix products by cuBLASLt {}", handle.library()->version());
}

}  // namespace tessera::cuda
