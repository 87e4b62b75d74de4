// SPDX-License-Identifier: Apache-2.0
// Tests grouped_product and grouped_outer_product on the virtual GPU: the op cases, each tile size
// with several tiles against the CPU, and groups with zero rows. The bits of a group's result do
// not depend on the other groups.
#include "core/ops/grouped_product.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "core/check/op_cases.h"
#include "core/ops/einsum.h"
#include "tests/plugins/cuda/product_trial.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/launched_graph.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

using Tensors = std::vector<Tensor>;
using Numbers = std::vector<double>;

constexpr int64_t kGroups = 4;

TEST_CASE("op cases of grouped products on the GPU agree with the reference") {
  const TestDevices devices;
  int cases = 0;
  for (const OpCase& row : all_op_cases()) {
    if (row.op != &kGroupedProductOp && row.op != &kGroupedOuterProductOp) continue;
    REQUIRE(devices.gpu->has_kernel(*row.op));
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      INFO(case_name(row, dtype));
      REQUIRE(check_case(row, dtype, *devices.gpu).mismatch == "");
      ++cases;
    }
  }
  REQUIRE(cases == 80);
}

// Returns the ids of `count` rows: `pattern` repeated.
Numbers repeated(const Numbers& pattern, int64_t count) {
  Numbers ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(pattern[static_cast<size_t>(i) % pattern.size()]);
  return ids;
}

// Patterns of ids: group 1 empty and group 2 the largest; ids outside the groups; one group; no
// group.
const std::vector<Numbers> kPatterns = {
    {2, 0, 2, 3, 2, -1, 2, kGroups, 2, 2, 3}, {0, 1, 2, 3}, {1}, {-1, 99}};

struct Sizes {
  int64_t tokens, embed, mlp;
};

// A product of rows or a sum of outer products, and its ids.
struct GroupedCase {
  std::string dtype;
  Sizes sizes;
  bool transposed = false;  // The product's matrices are transposed.
  Numbers ids;              // Two choices per token.

  // Returns the types of the operands.
  std::vector<std::string> types(bool outer) const {
    const auto& [tokens, embed, mlp] = sizes;
    const std::string matrix = transposed ? fmt::format("mlp={} embed={}", mlp, embed)
                                          : fmt::format("embed={} mlp={}", embed, mlp);
    return {fmt::format("{}[\"token={} embed={}\"]", dtype, tokens, embed),
            outer ? fmt::format("{}[\"token={} top_k=2 mlp={}\"]", dtype, tokens, mlp)
                  : fmt::format("{}[\"experts={} {}\"]", dtype, kGroups, matrix),
            fmt::format("i32[\"token={} top_k=2\"]", tokens)};
  }
};

struct Values {
  Numbers operands[2], result;
};

Values values_of(const GroupedCase& each, bool outer, Device& device,
                 const OperandPlace& place = {}) {
  Trial trial(Mesh(), each.types(outer));
  const Tensors& in = trial.inputs();
  trial.graph().add_output(
      "y", (outer ? grouped_outer_product(in[0], in[1], in[2], {"experts", kGroups, {}})
                  : grouped_product(in[0], in[1], in[2], "experts", over("embed")))
               .id());
  ReferenceInputs inputs = random_inputs(trial.graph(), 7);
  const auto input = [&](size_t i) -> Numbers& { return inputs[trial.graph().inputs()[i].name]; };
  input(2) = each.ids;
  return {{input(0), input(1)}, run_launched(device, trial.graph(), inputs, place).at("y")};
}

// Returns the first difference of the GPU's results from the CPU's, or "".
std::string difference(const TestDevices& devices, const GroupedCase& each, bool outer,
                       const OperandPlace& place = {}) {
  const Tolerance tolerance = {.relative = each.dtype == "bf16" ? 1e-2 : 1e-4,
                               .absolute = each.dtype == "bf16" ? 5e-2 : 1e-4};
  return element_difference({{"y", values_of(each, outer, *devices.gpu, place).result}},
                            {{"y", values_of(each, outer, *devices.cpu).result}}, tolerance);
}

// Covers rows that fill no tile or no whole number of tiles, and widths and addresses with and
// without 16-byte accesses.
TEST_CASE("grouped products on the GPU: any ids, widths and alignment") {
  const TestDevices devices;
  for (const std::string dtype : {"f32", "bf16"}) {
    for (const Sizes sizes :
         {Sizes{1, 8, 8}, Sizes{3, 5, 7}, Sizes{70, 40, 72}, Sizes{61, 33, 35}}) {
      for (const Numbers& pattern : kPatterns) {
        for (const bool transposed : {false, true}) {
          const GroupedCase each{dtype, sizes, transposed, repeated(pattern, 2 * sizes.tokens)};
          CAPTURE(dtype, sizes.tokens, sizes.embed, sizes.mlp, pattern, transposed);
          REQUIRE(difference(devices, each, false) == "");
          REQUIRE(difference(devices, each, false, {.shift = 1}) == "");
          if (transposed) continue;
          REQUIRE(difference(devices, each, true) == "");
          REQUIRE(difference(devices, each, true, {.shift = 1}) == "");
        }
      }
    }
  }
}

// Whether a run of this case launches the kernel.
bool launches_kernel(const TestDevices& devices, const GroupedCase& each, bool outer,
                     const std::string& kernel) {
  bool found = false;
  virtual_gpu::state().kernel_observer = [&](const virtual_gpu::Task& task, const auto&) {
    found |= task.name.starts_with("kernel " + kernel + " ");
  };
  values_of(each, outer, *devices.gpu);
  virtual_gpu::state().kernel_observer = nullptr;
  return found;
}

TEST_CASE("grouped products on the GPU: large tiles") {
  const TestDevices devices;
  const Numbers& pattern = kPatterns[0];
  for (const auto& [dtype, tile, rows, factors] :
       {std::tuple("bf16", 128, Sizes{775, 17, 1416}, Sizes{25, 515, 904}),
        std::tuple("f32", 64, Sizes{355, 19, 772}, Sizes{25, 260, 501})}) {
    for (const bool transposed : {false, true}) {
      const GroupedCase each{dtype, rows, transposed, repeated(pattern, 2 * rows.tokens)};
      CAPTURE(dtype, transposed);
      REQUIRE(launches_kernel(
          devices, each, false,
          fmt::format("grouped_product_{}_{}_{}", dtype, transposed ? 't' : 'n', tile)));
      REQUIRE(difference(devices, each, false) == "");
    }
    const GroupedCase each{dtype, factors, false, repeated(pattern, 2 * factors.tokens)};
    REQUIRE(launches_kernel(devices, each, true,
                            fmt::format("grouped_outer_product_{}_{}", dtype, tile)));
    REQUIRE(difference(devices, each, true) == "");
  }
}

// Returns the choices of a group, in order.
std::vector<int64_t> choices_of(const Numbers& ids, int64_t group) {
  std::vector<int64_t> choices;
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] == static_cast<double>(group)) choices.push_back(static_cast<int64_t>(i));
  return choices;
}

// Returns these rows of `width` numbers.
Numbers gathered(const Numbers& from, int64_t width, const std::vector<int64_t>& rows,
                 int64_t choices_of_a_row) {
  Numbers made;
  for (const int64_t row : rows) {
    const auto begin = from.begin() + row / choices_of_a_row * width;
    made.insert(made.end(), begin, begin + width);
  }
  return made;
}

// Runs einsum of two operands with our own kernels.
Numbers product(const TestDevices& devices, const std::vector<std::string>& types,
                const std::string& contracted, const std::vector<Numbers>& values) {
  Trial trial(Mesh(), types);
  trial.graph().add_output("y",
                           einsum(trial.inputs()[0], trial.inputs()[1], over(contracted)).id());
  ReferenceInputs inputs;
  for (size_t i = 0; i < values.size(); ++i) inputs[trial.graph().inputs()[i].name] = values[i];
  return run_launched(*devices.gpu, trial.graph(), inputs).at("y");
}

TEST_CASE("grouped products on the GPU have the bits of products of each group") {
  const ScopedVariable variable("TESSERA_CUDA_GEMM", "reference");
  const TestDevices devices;
  const Sizes sizes{75, 70, 40};
  const int64_t tokens = sizes.tokens, embed = sizes.embed, mlp = sizes.mlp;
  for (const std::string dtype : {"f32", "bf16"}) {
    CAPTURE(dtype);
    const GroupedCase each{dtype, sizes, false, repeated(kPatterns[0], 2 * tokens)};
    const Values rows = values_of(each, false, *devices.gpu);
    const Values factors = values_of(each, true, *devices.gpu);
    for (int64_t group = 0; group < kGroups; ++group) {
      const std::vector<int64_t> choices = choices_of(each.ids, group);
      if (choices.empty()) continue;
      const auto row_type = [&](const char* axis, int64_t width) {
        return fmt::format("{}[\"row={} {}={}\"]", dtype, choices.size(), axis, width);
      };
      const auto matrix = rows.operands[1].begin() + group * embed * mlp;
      const Numbers of_group = product(
          devices,
          {row_type("embed", embed), fmt::format("{}[\"embed={} mlp={}\"]", dtype, embed, mlp)},
          "embed",
          {gathered(rows.operands[0], embed, choices, 2), Numbers(matrix, matrix + embed * mlp)});
      REQUIRE(gathered(rows.result, mlp, choices, 1) == of_group);
      const Numbers sum_of_group =
          product(devices, {row_type("embed", embed), row_type("mlp", mlp)}, "row",
                  {gathered(factors.operands[0], embed, choices, 2),
                   gathered(factors.operands[1], mlp, choices, 1)});
      REQUIRE(gathered(factors.result, embed * mlp, {group}, 1) == sum_of_group);
    }
  }
}

// Each element has one product, so that sums have no order.
TEST_CASE("shards of grouped products on the GPU have the CPU's bits") {
  const TestDevices devices;
  const Mesh mesh = Mesh::standard({2, 2, 2});
  const auto shards_difference = [&](const std::vector<std::string>& types,
                                     const Application& apply) {
    Trial trial(mesh, types);
    trial.graph().add_output("result", apply(trial.inputs()).id());
    return difference_on_shards(trial.graph(), mesh, *devices.gpu, *devices.cpu);
  };
  const std::string ids = "i32[\"batch/data=4 top_k=2\"]";
  REQUIRE(shards_difference(
              {"f32[\"batch/data=4 embed=1\"]", "f32[\"experts/mdl=8 embed=1 mlp=5\"]", ids},
              [](const Tensors& in) {
                return grouped_product(in[0], in[1], in[2], "experts", over("embed"));
              }) == "");
  REQUIRE(shards_difference(
              {"f32[\"batch/data=4 embed=3\"]", "f32[\"batch/data=4 top_k=2 mlp=5\"]", ids},
              [](const Tensors& in) {
                return grouped_outer_product(in[0], in[1], in[2], {"experts", 8, {"mdl"}});
              }) == "");
}

TEST_CASE("unsupported sizes of grouped products on the GPU are an error") {
  const TestDevices devices;
  Trial trial(Mesh(), {"bf16[\"n=1 e=2147483648\"]", "bf16[\"experts=1 e=2147483648 m=1\"]",
                       "i32[\"n=1\"]"});
  const Tensors& in = trial.inputs();
  grouped_product(in[0], in[1], in[2], "experts", over("e"));
  REQUIRE_THAT(
      error_of([&] { devices.gpu->prepare(trial.graph(), trial.graph().nodes().back()); }),
      Catch::Contains("grouped_product: e=2147483648 on one device, expected at most 2^31 - 1"));
}

}  // namespace
}  // namespace tessera::cuda
