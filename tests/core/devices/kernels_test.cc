// SPDX-License-Identifier: Apache-2.0
// Every op case through passes, plan and CPU kernels, in f32 and bf16, against the reference
// interpreter in double precision; and the same bits on several threads. Runs at each processor
// level (docs/testing.md).
#include <algorithm>
#include <cmath>

#include "core/check/op_cases.h"
#include "core/check/run_graph.h"
#include "core/devices/cpu/device.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using NamedValues = std::map<std::string, std::vector<double>>;

// All NaN are equal, because conversion to double may change their bits.
bool same_bits(const NamedValues& a, const NamedValues& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && std::equal(x.second.begin(), x.second.end(), y.second.begin(),
                                            y.second.end(), [](double one, double other) {
                                              return one == other ||
                                                     (std::isnan(one) && std::isnan(other));
                                            });
  });
}

void check_rows(DType dtype) {
  const auto device = make_cpu_device(2);
  for (const OpCase& row : all_op_cases()) {
    if (dtype != DType::kF32 && !takes_floats(row)) continue;
    INFO(case_name(row, dtype));
    REQUIRE(check_case(row, dtype, *device).mismatch == "");
  }
}

TEST_CASE("every op's CPU kernel in f32 agrees with the reference") { check_rows(DType::kF32); }

TEST_CASE("every op's CPU kernel in bf16 agrees with the reference") { check_rows(DType::kBF16); }

TEST_CASE("every op's results have the same bits on 1, 2, 3 and 4 threads") {
  std::vector<std::unique_ptr<Device>> devices;
  for (const int threads : {1, 2, 3, 4}) devices.push_back(make_cpu_device(threads));
  for (const OpCase& row : all_op_cases()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      if (dtype != DType::kF32 && !takes_floats(row)) continue;
      const Graph graph = traced_case(row, dtype, Mesh::standard({1, 1, 1}));
      const ReferenceInputs inputs = rounded(graph, sample_inputs(graph, row.ids));
      CompileOptions options;
      options.mesh = Mesh::standard({1, 1, 1});
      const auto expected = run_graph(graph, inputs, *devices[0], options);
      for (size_t i = 1; i < devices.size(); ++i) {
        INFO(case_name(row, dtype) << " on " << i + 1 << " threads");
        REQUIRE(same_bits(run_graph(graph, inputs, *devices[i], options), expected));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
