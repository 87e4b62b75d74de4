// SPDX-License-Identifier: Apache-2.0
// Tests 8-bit products on a GPU: rounding of operands in both layouts to every code, products of
// all layouts with their epilogues, and calls to the stand-in for cuBLASLt.
#include "plugins/cuda/gemm/fp8_product.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/check/op_cases.h"
#include "core/check/run_graph.h"
#include "core/compile/fuse/fuse.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/text.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/fp8.h"
#include "core/ops/repeat.h"
#include "plugins/cuda/device/device.h"
#include "tests/plugins/cuda/product_trial.h"
#include "tests/plugins/cuda/test_cublaslt.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"

namespace tessera::cuda {
namespace {

using Names = std::vector<std::string>;
using Values = std::vector<double>;

// Returns the values of all codes of a format without sign, ascending.
Values codes_of(const Float8Format& format) {
  Values values;
  for (int exponent = format.min_exponent; exponent <= format.max_exponent; ++exponent) {
    const int first = exponent == format.min_exponent ? -(1 << format.digits) : 0;
    for (int i = first; i < 1 << format.digits; ++i)
      values.push_back(std::ldexp((1 << format.digits) + i, exponent - format.digits));
  }
  while (values.back() > largest(format)) values.pop_back();  // The codes of NaN and infinity.
  return values;
}

// Returns values of codes, midpoints between them and neighbours of midpoints, of both signs, times
// a power of two. Some are larger than all codes.
Values numbers_to_round(const Float8Format& format, int power, size_t count) {
  const Values codes = codes_of(format);
  Values values;
  for (size_t i = 0; values.size() < count; ++i) {
    const double low = codes[i % (codes.size() - 1)], high = codes[i % (codes.size() - 1) + 1];
    const double half = (low + high) / 2;
    for (const double value : {low, half, half * (1 - 0x1p-12), half * (1 + 0x1p-12), high})
      values.push_back(std::ldexp(values.size() % 2 == 0 ? value : -value, power));
  }
  values.resize(count);
  const double most = std::ldexp(double{largest(format)}, power);
  values[0] = most, values[1] = 1.01 * most, values[2] = -1e4 * most;
  return values;
}

struct Rounding {
  Names formats;
  Float8Format format;
};
const Rounding kRoundings[] = {{{"e4m3", "e4m3"}, kE4M3}, {{"e5m2", "e4m3"}, kE5M2}};

// Builds x · identity, with x stored in the order `axes`.
Graph rounding_graph(const Names& formats, const std::string& axes, int rows, int depth,
                     DType dtype, bool amax_is_given) {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const auto sized = [&](std::string text) {
    text = fmt::format("{}[\"{}\"]", dtype_name(dtype), text);
    for (const auto& [name, size] : {std::pair{"row", rows}, {"depth", depth}, {"column", depth}})
      if (const size_t at = text.find(name); at != std::string::npos)
        text.insert(at + std::string(name).size(), fmt::format("={}", size));
    return parse_type(text);
  };
  const Tensor x = input("x", InputKind::kBatch, sized(axes));
  const Tensor w = input("w", InputKind::kBatch, sized("depth column"));
  Attributes attributes = {{key::kContracted, Names{"depth"}},
                           {key::kOutput, Names{"row", "column"}}};
  attributes.set(key::kFormats, formats);
  const Tensor amax =
      amax_is_given ? input("amax", InputKind::kBatch, make_type(dtype, {})) : absolute_maximum(x);
  output("y", trace_op(kFp8ProductOp, {x, w, amax, absolute_maximum(w)}, attributes, {}));
  return graph;
}

Values identity(int size) {
  Values values(static_cast<size_t>(size * size));
  for (int i = 0; i < size; ++i) values[static_cast<size_t>(i * (size + 1))] = 1.0;
  return values;
}

// Covers several tiles along rows and columns, and an inner size that is not a multiple of 16.
TEST_CASE("operands of 8-bit products have the reference's bits, in both layouts") {
  const TestDevices devices;
  constexpr int kRows = 70, kDepth = 137;
  for (const auto& [formats, format] : kRoundings) {
    for (const int power : {0, -40, 50}) {
      const Values x = numbers_to_round(format, power, kRows * kDepth);
      for (const char* const axes : {"row depth", "depth row"}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          CAPTURE(formats[0], power, axes, dtype_name(dtype));
          const Graph graph = rounding_graph(formats, axes, kRows, kDepth, dtype, true);
          const Values amax = {std::ldexp(double{largest(format)}, power)};
          const ReferenceInputs inputs = {{"x", x}, {"w", identity(kDepth)}, {"amax", amax}};
          REQUIRE(run_graph(graph, inputs, *devices.gpu).at("y") ==
                  evaluate(graph, rounded(graph, inputs)).at("y").values);
        }
      }
    }
  }
}

TEST_CASE("an 8-bit product of an operand that is not finite is NaN on a GPU") {
  const TestDevices devices;
  const Graph graph = rounding_graph({"e4m3", "e4m3"}, "row depth", 4, 16, DType::kF32, false);
  for (const double wrong : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    Values x(64, 1.0);
    x[7] = wrong;
    const auto results = run_graph(graph, {{"x", x}, {"w", identity(16)}}, *devices.gpu);
    for (const double y : results.at("y")) REQUIRE(std::isnan(y));
  }
}

// Returns cases with packed, swapped, batched and transposed operands.
std::vector<OpCase> shaped_cases() {
  const char* const operands[][2] = {
      {"b=2 m=19 k=24", "k=24 n=16"},
      {"m=19 k=24", "n=33 k=24"},
      {"k=24 m=32", "k=24 n=16"},
      {"b=3 m=5 k=16", "b=3 k=16 n=8"},
      {"k=6 b=3 l=4 m=5", "b=3 l=4 n=7 k=6"},
      {"m=40 k=70", "k=70 n=33"},
      {"m=1 k=1", "k=1 n=1"},
      {"b=2 m=9", "b=2 n=5"},
  };
  std::vector<OpCase> rows;
  for (const auto& [a, b] : operands) {
    const auto sized = [](const std::string& axes) { return fmt::format("float[\"{}\"]", axes); };
    const bool two = std::string(a).find("l=") != std::string::npos;
    const bool none = std::string(a).find("k=") == std::string::npos;
    add_case(rows, kFp8ProductOp, {sized(a), sized(b)}, [=](const Tensors& in) -> Tensors {
      const Over contracted = none ? Over{} : over(two ? "k l" : "k");
      return {fp8_product(in[0], in[1], contracted), fp8_product(in[1], in[0], contracted)};
    }).differentiable = false;
  }
  return rows;
}

std::vector<OpCase> op_cases() {
  std::vector<OpCase> rows = all_op_cases();
  std::erase_if(rows, [](const OpCase& row) { return row.op != &kFp8ProductOp; });
  for (OpCase& row : shaped_cases()) rows.push_back(std::move(row));
  return rows;
}

// Requires that all cases pass. The virtual GPU adds in f32.
void require_all(std::vector<OpCase> rows, Device& gpu) {
  for (OpCase& row : rows) {
    row.tolerance_f32_of_kernel.reset();
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      INFO(case_name(row, dtype));
      REQUIRE(check_case(row, dtype, gpu).mismatch == "");
    }
  }
}

TEST_CASE("8-bit products on a GPU of any layout, and their gradients") {
  const ScopedVariable variable("TESSERA_CUDA_GEMM", "reference");
  const TestDevices devices;
  REQUIRE(op_cases().size() >= 10);
  require_all(op_cases(), *devices.gpu);
}

TEST_CASE("8-bit products of a graph run with their epilogues, fused or not") {
  for (const char* const settings : {"reference", "reference,plain"}) {
    const ScopedVariable variable("TESSERA_CUDA_GEMM", settings);
    const TestDevices devices;
    for (const OpCase& row : fused_cases(true)) {
      const Graph graph = fuse_products(lower(traced_case(row, DType::kBF16, Mesh()), Mesh()));
      INFO(graph_text(graph));
      REQUIRE(std::ranges::any_of(graph.nodes(),
                                  [](const Node& each) { return each.op == &kFusedProductOp; }));
    }
    require_all(fused_cases(true), *devices.gpu);
  }
}

TEST_CASE("GPUs without tensor cores for 8-bit floats emulate products of them") {
  for (const auto& [capability, expected] : {std::pair{"80", false}, {"89", true}, {"120", true}}) {
    const std::map<std::string, std::string> variables = {
        {"TESSERA_VIRTUAL_GPU_CAPABILITY", capability}};
    const virtual_gpu::TestGpus gpus(variables);
    const auto device = make_gpu();
    CAPTURE(capability);
    REQUIRE(device->has_kernel(kFp8ProductOp) == expected);
    REQUIRE(check_case(op_cases()[0], DType::kBF16, *device).mismatch == "");
  }
}

TEST_CASE("cuBLASLt multiplies 8-bit floats of all layouts, with their scales") {
  const FakeCublasLt fake;
  const ScopedVariable variable("TESSERA_CUDA_GEMM", "cublaslt,untimed");
  const auto device = make_gpu();
  for (const auto& [a, b] : {std::pair{"m=24 k=20", "k=20 n=16"},
                             {"k=20 m=24", "n=16 k=20"},
                             {"p=2 m=5 k=32", "p=2 k=32 n=8"}}) {
    std::vector<OpCase> rows;
    const auto product = [](const Tensors& in) {
      return fp8_product(in[0], scale(in[1], 0.125), over("k"));  // The scales differ.
    };
    add_case(rows, kFp8ProductOp,
             {fmt::format("float[\"{}\"]", a), fmt::format("float[\"{}\"]", b)}, product)
        .differentiable = false;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      INFO(case_name(rows[0], dtype));
      REQUIRE(check_case(rows[0], dtype, *device).mismatch == "");
      const FakeCublasLtCounts counts = fake.counts();
      REQUIRE(counts.products == 1);
      REQUIRE(counts.refused == 0);
    }
  }
}

TEST_CASE("8-bit products that cuBLASLt does not support run by our own kernels") {
  const FakeCublasLt fake;
  const ScopedVariable variable("TESSERA_CUDA_GEMM", "cublaslt,untimed");
  const auto device = make_gpu();
  std::vector<OpCase> rows;
  add_case(rows, kFp8ProductOp, {"float[\"m=5 k=16\"]", "float[\"k=16 n=9\"]"},
           [](const Tensors& in) { return fp8_product(in[0], in[1], over("k")); })
      .differentiable = false;
  require_all(rows, *device);
  const FakeCublasLtCounts counts = fake.counts();
  REQUIRE(counts.products == 0);
  REQUIRE(counts.refused == 0);
  require_all(fused_cases(true), *device);
  REQUIRE(fake.counts().refused == 0);
}

TEST_CASE("algorithms of 8-bit products are timed and kept under their formats") {
  const FakeCublasLt fake;
  const auto device = make_gpu();
  const ProductShape shape = dense_shape(DType::kBF16, DType::kBF16, 16, 32, 48);
  make_fp8_product(context_of(*device), shape, {.a = Float8::kE5M2},
                   {.kind = ProductSettings::Kind::kCublasLt});
  REQUIRE(fake.counts().products > 0);
  REQUIRE_THAT(read_bytes(fake.cache_file()),
               Catch::Contains("cuBLASLt 13.1.0, e5m2·e4m3->bf16 m=16 n=32 k=48 a=48n b=48t"));
}

}  // namespace
}  // namespace tessera::cuda
