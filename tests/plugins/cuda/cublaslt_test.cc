// SPDX-License-Identifier: Apache-2.0
// Tests calls to cuBLASLt, with a stand-in that computes the described product on the host.
#include "plugins/cuda/gemm/cublaslt.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "core/check/op_cases.h"
#include "core/ops/einsum.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/gemm/make_product.h"
#include "tests/plugins/cuda/product_trial.h"
#include "tests/plugins/cuda/test_cublaslt.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

constexpr ProductSettings kUntimed = {.kind = ProductSettings::Kind::kCublasLt, .untimed = true};
constexpr ProductSettings kTimed = {.kind = ProductSettings::Kind::kCublasLt};

TEST_CASE("cuBLASLt is called with the product of every einsum case") {
  const FakeCublasLt fake;
  const ScopedVariable variable("TESSERA_CUDA_GEMM", "cublaslt,untimed");
  const auto device = make_gpu();
  int64_t products = 0;
  for (const OpCase& row : all_op_cases()) {
    if (row.op != &kEinsumOp) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      INFO(case_name(row, dtype));
      REQUIRE(check_case(row, dtype, *device).mismatch == "");
      const FakeCublasLtCounts counts = fake.counts();
      REQUIRE(counts.refused == 0);
      products += counts.products;
    }
  }
  REQUIRE(products >= 32);
}

TEST_CASE("cuBLASLt is called for all layouts, paddings, batches and dtypes") {
  const FakeCublasLt fake;
  const auto device = make_gpu();
  for (const char* const layouts : {"nn", "nt", "tn", "tt"}) {
    for (const int64_t batches : {1, 3}) {
      for (const auto& [input, output] : {std::pair{DType::kF32, DType::kF32},
                                          {DType::kBF16, DType::kBF16},
                                          {DType::kBF16, DType::kF32}}) {
        const ProductShape shape = dense_shape(input, output, 5, 9, 7, layouts, 3, batches);
        REQUIRE(product_difference(*device, shape, kUntimed) == "");
        const FakeCublasLtCounts counts = fake.counts();
        REQUIRE(counts.products == 1);
        REQUIRE(counts.refused == 0);
      }
    }
  }
}

TEST_CASE("cuBLASLt runs bias, GELU, its gradient and sums with the product") {
  const FakeCublasLt fake;
  const auto device = make_gpu();
  std::vector<Epilogue> epilogues = {
      {.bias = true}, {.adds = true}, {.activation = Activation::kGeluGradient}};
  for (const bool bias : {false, true})
    for (const bool saves : {false, true})
      epilogues.push_back({.activation = Activation::kGelu, .bias = bias, .saves_operand = saves});
  for (const Epilogue& epilogue : epilogues) {
    for (const int64_t batches : {1, 2}) {
      const DType output = epilogue.adds ? DType::kF32 : DType::kBF16;
      ProductShape shape = dense_shape(DType::kBF16, output, 6, 16, 8, "nt", 8, batches);
      shape.epilogue = epilogue;
      REQUIRE(product_difference(*device, shape, kUntimed) == "");
      REQUIRE(fake.counts().products == 1);
      ProductSettings plain = kUntimed;
      plain.plain = true;
      REQUIRE(product_difference(*device, shape, plain) == "");
      const FakeCublasLtCounts counts = fake.counts();
      REQUIRE(counts.products == 1);
      REQUIRE(counts.refused == 0);
    }
  }
}

TEST_CASE("cuBLASLt is called with the products of a graph and their epilogues") {
  const FakeCublasLt fake;
  for (const char* const settings : {"cublaslt,untimed", "cublaslt,untimed,plain"}) {
    const ScopedVariable variable("TESSERA_CUDA_GEMM", settings);
    const auto device = make_gpu();
    for (const OpCase& row : fused_cases()) {
      REQUIRE(check_case(row, DType::kBF16, *device).mismatch == "");
      const FakeCublasLtCounts counts = fake.counts();
      REQUIRE(counts.products > 0);
      REQUIRE(counts.refused == 0);
    }
  }
}

TEST_CASE("epilogues that cuBLASLt does not have run as a pass of their own") {
  const auto device_product = [](const FakeCublasLt& fake, const Epilogue& epilogue, int64_t n) {
    const auto device = make_gpu();
    ProductShape shape = dense_shape(DType::kBF16, DType::kBF16, 6, n, 8);
    shape.epilogue = epilogue;
    REQUIRE(product_difference(*device, shape, kUntimed) == "");
    const FakeCublasLtCounts counts = fake.counts();
    REQUIRE(counts.products == 1);
    REQUIRE(counts.refused == 0);
  };
  const FakeCublasLt fake;
  device_product(fake, {.activation = Activation::kSilu, .bias = true}, 16);
  device_product(fake, {.activation = Activation::kSiluGradient}, 16);
  // The saved matrix needs rows of 8 elements.
  device_product(fake, {.activation = Activation::kGelu, .saves_operand = true}, 9);
  fake.behave({.no_epilogues = true});
  device_product(fake, {.activation = Activation::kGelu, .bias = true}, 16);
  device_product(fake, {.bias = true}, 16);
}

TEST_CASE("operands at any address, and empty products, do not go to cuBLASLt") {
  const FakeCublasLt fake;
  const auto device = make_gpu();
  const ProductShape shape = dense_shape(DType::kBF16, DType::kF32, 6, 16, 8);
  REQUIRE(product_difference(*device, shape, kUntimed, 1) == "");
  REQUIRE(product_difference(*device, dense_shape(DType::kF32, DType::kF32, 3, 4, 0), kUntimed) ==
          "");
  REQUIRE(fake.counts().products == 0);
}

TEST_CASE("a GPU that cuBLASLt cannot use runs our own products") {
  const FakeCublasLt fake({.no_handle = true});
  const ScopedVariable kind("TESSERA_CUDA_GEMM", "");
  const auto device = make_gpu();
  REQUIRE_THAT(
      device->description(),
      Catch::Contains("matrix products by own kernels (cuBLASLt 13.1.0 cannot use this GPU: "
                      "CUBLAS_STATUS_NOT_INITIALIZED)"));
  const ProductShape shape = dense_shape(DType::kF32, DType::kF32, 2, 3, 4);
  REQUIRE(product_difference(*device, shape, product_settings()) == "");
  REQUIRE(fake.counts().products == 0);
}

TEST_CASE("cuBLASLt is the default where it is usable") {
  const FakeCublasLt fake;
  const ScopedVariable kind("TESSERA_CUDA_GEMM", "untimed");
  const auto device = make_gpu();
  REQUIRE_THAT(device->description(), Catch::Contains("matrix products by cuBLASLt 13.1.0") &&
                                          Catch::Contains("cuBLASLt 13.1.0 from " + kFakeLibrary));
  const auto product =
      make_product(context_of(*device), dense_shape(DType::kF32, DType::kF32, 2, 3, 4));
  REQUIRE(product->scratch_bytes() >= 4 << 20);
}

TEST_CASE("candidates are timed once, and the fastest is kept on disk") {
  const FakeCublasLt fake;
  auto device = make_gpu();
  const ProductShape shape = dense_shape(DType::kBF16, DType::kF32, 4, 8, 8);
  const auto timings = [&](const ProductShape& of) {
    fake.counts();
    make_product(context_of(*device), of, kTimed);
    return fake.counts().products;
  };
  REQUIRE(timings(shape) > 0);
  REQUIRE(timings(shape) == 0);
  device = nullptr;
  device = make_gpu();  // Like a restart of the program.
  make_product(context_of(*device), shape, kTimed);
  const FakeCublasLtCounts counts = fake.counts();
  REQUIRE(counts.products == 0);
  REQUIRE(counts.loads == 1);  // The kernel is loaded here, not by the first step.
  const std::string text = read_bytes(fake.cache_file());
  REQUIRE_THAT(text,
               Catch::Contains(context_of(*device).name() + ", cuBLASLt 13.1.0, " + shape.text()));
  ProductShape other = shape;
  other.epilogue.adds = true;
  REQUIRE(timings(other) > 0);
  fake.behave({.version = 130200});
  REQUIRE(timings(shape) > 0);
  fake.behave({.no_old_algorithms = true});
  REQUIRE(timings(shape) > 0);
  fake.behave({});
  REQUIRE(product_difference(*device, shape, kTimed) == "");
}

// The library creates descriptors without a GPU.
TEST_CASE("the installed cuBLASLt accepts our descriptors") {
  void* const library = ::dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return skip_test("no libcublasLt.so.13");
  const ScopedVariable named("TESSERA_CUBLASLT", "libcublasLt.so.13");
  std::string why;
  const CublasLt* const table = find_cublaslt(why);
  REQUIRE(table != nullptr);
  for (const Activation activation :
       {Activation::kNone, Activation::kGelu, Activation::kGeluGradient}) {
    ProductShape shape = dense_shape(DType::kBF16, DType::kBF16, 6, 16, 8, "nt", 8, 3);
    const bool forward = activation == Activation::kGelu;
    shape.epilogue = {.activation = activation, .bias = forward, .saves_operand = forward};
    REQUIRE(error_of([&] { CublasLtProblem(*table, shape); }) == "no error");
  }
}

}  // namespace
}  // namespace tessera::cuda
