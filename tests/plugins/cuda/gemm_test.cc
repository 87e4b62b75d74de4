// SPDX-License-Identifier: Apache-2.0
// Tests matrix products by our own kernels, and the einsum kernel that uses them.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/check/op_cases.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/fuse/fuse_products.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/text.h"
#include "core/ops/einsum.h"
#include "core/ops/inverse_root.h"
#include "core/ops/newton_schulz.h"
#include "core/ops/repeat.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/gemm/make_product.h"
#include "tests/plugins/cuda/product_trial.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

constexpr ProductSettings kReference = {.kind = ProductSettings::Kind::kReference};
constexpr ProductSettings kPlainReference = {.kind = ProductSettings::Kind::kReference,
                                             .plain = true};

const char* const kLayouts[] = {"nn", "nt", "tn", "tt"};

// Returns an operand's type: "float["m=3 k=4"]" for "mk".
std::string sized_operand(const std::string& names, const std::map<char, int>& sizes) {
  std::string text = "float[\"";
  for (const char name : names) text += fmt::format("{}={} ", name, sizes.at(name));
  return text + "\"]";
}

OpCase einsum_case(const std::string& x, const std::string& y, const std::string& z,
                   const std::map<char, int>& sizes) {
  const auto spaced = [](const std::string& names) {
    std::string text;
    for (const char name : names) text += std::string(text.empty() ? "" : " ") + name;
    return text;
  };
  const std::string equation = spaced(x) + ", " + spaced(y) + " -> " + spaced(z);
  return {.op = &kEinsumOp,
          .inputs = {sized_operand(x, sizes), sized_operand(y, sizes)},
          .build = [equation](const Tensors& in) -> Tensors {
            return {einsum(equation, in[0], in[1])};
          }};
}

TEST_CASE("einsum on a GPU computes every op case") {
  const ScopedVariable variable("TESSERA_CUDA_GEMM", "reference");
  const auto device = make_gpu();
  int cases = 0;
  for (const OpCase& row : all_op_cases()) {
    if (row.op != &kEinsumOp) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      INFO(case_name(row, dtype));
      REQUIRE(check_case(row, dtype, *device).mismatch == "");
      ++cases;
    }
  }
  REQUIRE(cases >= 32);
}

TEST_CASE("iterations of products on a GPU are those of their decompositions, in every op case") {
  const ScopedVariable variable("TESSERA_CUDA_GEMM", "reference");
  const auto device = make_gpu();
  int cases = 0;
  for (const OpCase& row : all_op_cases()) {
    if (row.op != &kNewtonSchulzOp && row.op != &kInverseRootOp) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      INFO(case_name(row, dtype));
      REQUIRE(check_case(row, dtype, *device).mismatch == "");
      ++cases;
    }
  }
  REQUIRE(cases == 14);
}

TEST_CASE("einsum on a GPU with axes in any order, packed where they form no matrix") {
  const ScopedVariable variable("TESSERA_CUDA_GEMM", "reference");
  const auto device = make_gpu();
  const std::map<char, int> sizes = {{'b', 3}, {'c', 2}, {'m', 5}, {'p', 2},
                                     {'n', 7}, {'q', 3}, {'k', 6}, {'l', 4}};
  const char* const cases[][3] = {
      {"bmkl", "klnq", "bmnq"}, {"bmnq", "klnq", "bmkl"}, {"bmkl", "bmnq", "klnq"},
      {"bmpk", "bnpk", "bpmn"}, {"kmlp", "lnkq", "mnpq"}, {"mkpl", "qlnk", "qpnm"},
      {"bm", "bm", "b"},        {"bm", "bm", ""},         {"m", "n", "mn"},
      {"bm", "b", "m"},         {"bm", "bn", "bmn"},      {"bmk", "k", "bm"},
      {"bm", "bm", "bm"},       {"kbm", "nkb", "mbn"},    {"bcmk", "cbkn", "mbcn"},
      {"cmbk", "bnck", "bcnm"},
  };
  for (const auto& [x, y, z] : cases) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const OpCase row = einsum_case(x, y, z, sizes);
      INFO(x << ", " << y << " -> " << z);
      REQUIRE(check_case(row, dtype, *device).mismatch == "");
    }
  }
}

TEST_CASE("products of a graph run with their epilogues, fused or not") {
  for (const char* const settings : {"reference", "reference,plain"}) {
    const ScopedVariable variable("TESSERA_CUDA_GEMM", settings);
    const auto device = make_gpu();
    for (const OpCase& row : fused_cases()) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Graph lowered = lower(traced_case(row, dtype, Mesh()), Mesh());
        const Graph graph = fuse_products(lowered);
        INFO(graph_text(graph));
        const auto is_fused = [](const Node& node) { return node.op == &kFusedProductOp; };
        REQUIRE(std::any_of(graph.nodes().begin(), graph.nodes().end(), is_fused));
        REQUIRE(check_case(row, dtype, *device).mismatch == "");
      }
    }
  }
}

TEST_CASE("a sum of a product and an array may replace the array, but not the factors") {
  const ScopedVariable variable("TESSERA_CUDA_GEMM", "reference");
  const auto device = make_gpu();
  const Graph graph =
      fuse_products(lower(traced_case(fused_cases()[0], DType::kF32, Mesh()), Mesh()));
  const Node& node = graph.nodes().back();
  REQUIRE(node.op == &kFusedProductOp);
  const auto kernel = device->prepare(graph, node);
  REQUIRE(kernel->may_overwrite(0, 2));
  REQUIRE_FALSE(kernel->may_overwrite(0, 0));
  REQUIRE_FALSE(kernel->may_overwrite(0, 1));
}

TEST_CASE("the reference product has any size, layout, padding, batch and alignment") {
  const auto device = make_gpu();
  struct Size {
    int64_t m, n, k, pad, batches;
  };
  const Size sizes[] = {{1, 1, 1, 0, 1},    {33, 17, 70, 0, 1}, {5, 40, 3, 3, 2},
                        {40, 33, 64, 8, 1}, {16, 8, 32, 0, 3},  {7, 9, 0, 0, 1}};
  for (const auto& [m, n, k, pad, batches] : sizes) {
    for (const char* const layouts : kLayouts) {
      for (const int64_t offset : {0, 1, 8}) {
        const auto difference = [&](DType input, DType output) {
          const ProductShape shape = dense_shape(input, output, m, n, k, layouts, pad, batches);
          return product_difference(*device, shape, kReference, offset);
        };
        REQUIRE(difference(DType::kF32, DType::kF32) == "");
        REQUIRE(difference(DType::kBF16, DType::kBF16) == "");
        REQUIRE(difference(DType::kBF16, DType::kF32) == "");
      }
    }
  }
}

// Large tiles are used if there is at least one per multiprocessor: here a batch of equal products.
TEST_CASE("the reference product's large tiles compute the bits of its small ones") {
  const auto device = make_gpu();
  for (const char* const layouts : kLayouts) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const int64_t m = dtype == DType::kF32 ? 33 : 65;
      const ProductShape small = dense_shape(dtype, dtype, m, m + 7, 40, layouts);
      ProductShape large = small;
      large.batches = context_of(*device).multiprocessors();
      large.c_stride = small.c_extent();
      REQUIRE(product_difference(*device, small, kReference) == "");
      const ProductResult one = run_product(*device, small, kReference);
      const ProductResult all = run_product(*device, large, kReference);
      const int64_t size = small.c_extent();
      for (const int64_t batch : {int64_t{0}, large.batches - 1})
        REQUIRE(std::equal(one.c.begin(), one.c.end(), all.c.begin() + batch * size));
    }
  }
}

TEST_CASE("the reference product's bits are the same in every run, and of a row computed alone") {
  const auto device = make_gpu();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ProductShape shape = dense_shape(dtype, DType::kF32, 37, 45, 83, "nt");
    const ProductResult result = run_product(*device, shape, kReference);
    REQUIRE(run_product(*device, shape, kReference).c == result.c);
    const ProductShape row = dense_shape(dtype, DType::kF32, 1, 45, 83, "nt");
    ProductShape same_operands = shape;  // Every row is the first row.
    same_operands.matrices.a.leading = 0;
    const ProductResult rows = run_product(*device, same_operands, kReference);
    REQUIRE(std::equal(rows.c.begin(), rows.c.begin() + 45, rows.c.end() - 45));
    REQUIRE(std::equal(rows.c.begin(), rows.c.begin() + 45,
                       run_product(*device, row, kReference).c.begin()));
  }
}

TEST_CASE("epilogues of the reference product, fused and as a pass of their own") {
  const auto device = make_gpu();
  for (const Epilogue& epilogue : all_epilogues()) {
    for (const DType output : {DType::kF32, DType::kBF16}) {
      for (const DType input : {DType::kF32, DType::kBF16}) {
        if (input == DType::kF32 && output == DType::kBF16) continue;
        ProductShape shape = dense_shape(input, output, 19, 24, 21, "tn", 8, 2);
        shape.epilogue = epilogue;
        REQUIRE(product_difference(*device, shape, kReference) == "");
        REQUIRE(product_difference(*device, shape, kPlainReference) == "");
      }
    }
  }
}

TEST_CASE("TESSERA_CUDA_GEMM names the product, and unknown words are errors") {
  const auto settings_of = [](const std::string& text) {
    const ScopedVariable variable("TESSERA_CUDA_GEMM", text);
    return product_settings();
  };
  REQUIRE(settings_of("").kind == ProductSettings::Kind::kDefault);
  REQUIRE(settings_of("reference").kind == ProductSettings::Kind::kReference);
  const ProductSettings all = settings_of("cublaslt,plain,untimed");
  REQUIRE(all.kind == ProductSettings::Kind::kCublasLt);
  REQUIRE((all.plain && all.untimed));
  REQUIRE_THAT(error_of([&] { settings_of("plane"); }),
               Catch::Contains("TESSERA_CUDA_GEMM: unknown word 'plane'") &&
                   Catch::Contains("did you mean") && Catch::Contains("expected reference"));
}

TEST_CASE("with a driver that NVIDIA's libraries do not use, our own products run") {
  const ScopedVariable library("TESSERA_CUBLASLT", ""), kind("TESSERA_CUDA_GEMM", "");
  const auto device = make_gpu();
  REQUIRE_THAT(device->description(),
               Catch::Contains("matrix products by own kernels (TESSERA_CUDA_"
                               "DRIVER names another driver"));
  const ScopedVariable cublaslt("TESSERA_CUDA_GEMM", "cublaslt");
  REQUIRE_THAT(error_of([&] {
                 make_product(context_of(*device), dense_shape(DType::kF32, DType::kF32, 2, 2, 2));
               }),
               Catch::Contains("TESSERA_CUDA_GEMM=cublaslt: ") &&
                   Catch::Contains("use TESSERA_CUDA_GEMM=reference"));
}

TEST_CASE("a missing cuBLASLt is named in one sentence") {
  const ScopedVariable library("TESSERA_CUBLASLT", "/nowhere/libcublasLt.so.13");
  const ScopedVariable kind("TESSERA_CUDA_GEMM", "");
  REQUIRE_THAT(make_gpu()->description(),
               Catch::Contains("matrix products by own kernels (no cuBLASLt: /nowhere/"));
}

}  // namespace
}  // namespace tessera::cuda
