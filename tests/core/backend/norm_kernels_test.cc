// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm on the CPU against their decompositions: widths with and without tails,
// both dtypes, weights of either dtype, one thread and more.
#include <fmt/core.h>

#include "core/ops/norm.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

TEST_CASE("norm kernels agree with their decompositions") {
  const std::string dtype = GENERATE("f32", "bf16");
  const std::string weights = GENERATE("f32", "bf16");
  const int width = GENERATE(3, 7, 16, 33, 1024);
  const int threads = GENERATE(1, 3);
  const bool centered = GENERATE(false, true);
  const int operands = GENERATE(0, 1, 2);
  CAPTURE(dtype, weights, width, threads, centered, operands);
  if (operands == 2 && !centered) return;

  Trial trial({}, {fmt::format("{}[\"batch=3 seq=5 embed={}\"]", dtype, width),
                   fmt::format("{}[\"embed={}\"]", weights, width),
                   fmt::format("{}[\"embed={}\"]", weights, width)});
  const std::vector<Tensor>& in = trial.inputs();
  const Tensor scale = operands > 0 ? in[1] : Tensor();
  const Tensor bias = operands > 1 ? in[2] : Tensor();
  if (centered) {
    layer_norm(in[0], scale, bias, "embed", 1e-5);
  } else {
    rms_norm(in[0], scale, "embed", 1e-5);
  }
  traced_gradient(trial.graph(), Node(trial.graph().nodes().back()));
  REQUIRE(kernel_mismatch(trial.graph(), {.threads = threads}) == "");
}

TEST_CASE("a norm of large values with a large mean keeps its precision") {
  Trial trial({}, {"f32[\"batch=2 embed=300\"]"});
  layer_norm(trial.inputs()[0], {}, {}, "embed", 1e-5);
  std::vector<double> values(600);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 4096.0 + static_cast<double>(i % 7);
  // The mean is rounded to f32, with a spacing of 5e-4 at this magnitude.
  REQUIRE(kernel_mismatch(trial.graph(), {.tolerance_f32 = 3e-4, .given = {{"x", values}}}) == "");
}

}  // namespace
}  // namespace tessera
