// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/gemm/make_product.h"

#include <atomic>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/terminal.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/gemm/cublaslt.h"

namespace tessera::cuda {
namespace {

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
  std::string_view implementation() const override { return product_->implementation(); }

  void enqueue(CUstream stream, const ProductOperands& operands) override {
    ProductOperands bare = operands;
    bare.bias = bare.slopes = bare.addend = bare.saved = 0;
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

// Prints on standard error, once in a process, that a product is slower than it might be.
void note_own_product(const ProductShape& shape) {
  static std::atomic<bool> noted = false;
  if (noted.exchange(true)) return;
  print_error(
      fmt::format("note: a matrix product runs on our own kernels, which are slower, since "
                  "cuBLASLt has no algorithm for it: {}",
                  shape.text()));
}

// "matrix products by cuBLASLt 13.1.0", or why not.
std::string describe_products(Context& context) {
  if (product_settings().kind == ProductSettings::Kind::kReference)
    return fmt::format("matrix products by own kernels ({}=reference)", kGemmVariable);
  const auto& handle = context.part<CublasLtHandle>();
  if (handle.library() == nullptr)
    return fmt::format("matrix products by own kernels ({})", handle.why_not());
  return fmt::format("matrix products by cuBLASLt {}", handle.library()->version());
}

const DescriptionRegistrar kDescribeProducts{describe_products};

}  // namespace

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
  if (!product) {
    if (shape.a_extent() > 0 && shape.b_extent() > 0) note_own_product(shape);
    return make_reference_product(context, shape);
  }
  return std::make_unique<PlainProduct>(context, shape, std::move(product));
}

}  // namespace tessera::cuda
