// SPDX-License-Identifier: Apache-2.0
// Tests row kernels of the CUDA device (norms, softmax, rotary) on the virtual GPU: every op case,
// and sizes for every path: part of a warp, a warp, a block, rows wider than a block's registers,
// and operands that are not aligned to 16 bytes.
#include "core/ops/norm.h"

#include <fmt/core.h>

#include "core/check/op_cases.h"
#include "core/check/run_graph.h"
#include "core/compile/fuse/fuse.h"
#include "core/ops/elementwise.h"
#include "core/ops/rotary.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"
#include "tests/support/launched_graph.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

// Returns the node that was traced first. Results may be views of its outputs.
Node first_node(Trial& trial) { return trial.graph().nodes().front(); }

TEST_CASE("cases of norm, softmax and rotary agree with the reference on the virtual GPU") {
  const TestDevices devices;
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  for (const OpCase& row : all_op_cases()) {
    const std::string family = family_of(row);
    if (family != "norm" && family != "softmax" && row.op != &kRotaryOp) continue;
    INFO(case_name(row, dtype));
    REQUIRE(check_case(row, dtype, *devices.gpu).mismatch == "");
  }
}

void check_norm(Device& gpu, const std::string& x, const std::string& weights, bool centered,
                int operands, int64_t offset) {
  CAPTURE(x, weights, centered, operands, offset);
  Trial trial({}, {x, weights, weights});
  const std::vector<Tensor>& in = trial.inputs();
  const Tensor scale = operands > 0 ? in[1] : Tensor();
  const Tensor bias = operands > 1 ? in[2] : Tensor();
  if (centered) {
    layer_norm(in[0], scale, bias, "embed", 1e-5);
  } else {
    rms_norm(in[0], scale, "embed", 1e-5);
  }
  traced_gradient(trial.graph(), first_node(trial));
  KernelCheck check{.device = &gpu, .offset = offset};
  // Terms of the gradient of a single element nearly cancel.
  if (in[0].size("embed") == 1) check.tolerance_f32 = 1e-3;
  REQUIRE(kernel_mismatch(trial.graph(), check) == "");
}

TEST_CASE("norms of every width agree with their decompositions on the virtual GPU") {
  const TestDevices devices;
  const std::string dtype = GENERATE("f32", "bf16");
  // 600 takes several warps, 8200 is more than a block holds. Odd widths move single elements.
  const int width = GENERATE(1, 7, 16, 40, 131, 600, 8200);
  const int64_t offset = GENERATE(0, 1);
  for (const std::string weights : {"f32", "bf16"}) {
    const std::string x =
        fmt::format("{}[\"batch={} embed={}\"]", dtype, width < 100 ? 11 : 3, width);
    const std::string embed = fmt::format("{}[\"embed={}\"]", weights, width);
    check_norm(*devices.gpu, x, embed, false, 1, offset);
    check_norm(*devices.gpu, x, embed, true, 2, offset);
  }
}

TEST_CASE("norms without weights or without a bias on the virtual GPU") {
  const TestDevices devices;
  const std::string dtype = GENERATE("f32", "bf16");
  const int width = GENERATE(24, 1000);
  const std::string x = fmt::format("{}[\"batch=5 embed={}\"]", dtype, width);
  const std::string embed = fmt::format("f32[\"embed={}\"]", width);
  check_norm(*devices.gpu, x, embed, false, 0, 0);
  check_norm(*devices.gpu, x, embed, true, 0, 0);
  check_norm(*devices.gpu, x, embed, true, 1, 0);
}

// Covers more rows than blocks: a block sums several rows.
TEST_CASE("gradients of norms of many rows on the virtual GPU") {
  const TestDevices devices;
  check_norm(*devices.gpu, "bf16[\"batch=1100 embed=520\"]", "f32[\"embed=520\"]", true, 2, 0);
  check_norm(*devices.gpu, "f32[\"batch=3200 embed=33\"]", "bf16[\"embed=33\"]", false, 1, 0);
}

// Builds both sums of a residual: the norm of x + y, and its gradient plus another cotangent z.
Graph residual(const std::string& x, const std::string& weights, bool centered) {
  Trial trial({}, {x, x, x, weights, weights});
  const std::vector<Tensor>& in = trial.inputs();
  const Tensor sum = in[0] + in[1];
  output("sum", sum);
  output("norm", centered ? layer_norm(sum, in[3], in[4], "embed", 1e-5)
                          : rms_norm(sum, in[3], "embed", 1e-5));
  const std::vector<Tensor> gradient =
      traced_gradient(trial.graph(), Node(trial.graph().nodes().back()));
  output("dx", gradient[0] + in[2]);
  for (size_t i = 1; i < gradient.size(); ++i) output(fmt::format("weight {}", i), gradient[i]);
  return trial.graph();
}

void check_residual(const TestDevices& devices, const Graph& alone) {
  const Graph fused = fuse_norms(alone);
  REQUIRE(fused.nodes().size() == 2);
  const ReferenceInputs inputs = random_inputs(alone, 7);
  // f32 sums have another order, and bf16 results may round to the other neighbor.
  const bool narrow = alone.type(alone.inputs()[0].value).dtype == DType::kBF16;
  const Tolerance tolerance = narrow ? Tolerance{1e-2, 3e-2} : Tolerance{1e-4, 1e-4};
  for (const int64_t shift : {0, 1}) {
    const GraphResults bits = run_launched(*devices.gpu, alone, inputs, {.shift = shift});
    REQUIRE(element_difference(run_launched(*devices.gpu, fused, inputs, {.shift = shift}), bits) ==
            "");
    REQUIRE(element_difference(bits, rounded_reference(alone, inputs), tolerance) == "");
    // The norm replaces x. Then dx replaces the sum.
    GraphResults in_place =
        run_launched(*devices.gpu, fused, inputs, {.shift = shift, .in_place = true});
    in_place["sum"] = bits.at("sum");
    REQUIRE(element_difference(in_place, bits) == "");
  }
}

TEST_CASE("residuals have the bits of a sum and a norm of their own on the virtual GPU") {
  const TestDevices devices;
  const std::string dtype = GENERATE("f32", "bf16");
  const int width = GENERATE(1, 7, 40, 131, 600, 8200);
  const std::string weights = width == 40 ? "bf16" : "f32";
  for (const bool centered : {false, true})
    check_residual(devices, residual(fmt::format("{}[\"batch={} embed={}\"]", dtype,
                                                 width < 100 ? 11 : 3, width),
                                     fmt::format("{}[\"embed={}\"]", weights, width), centered));
}

// A norm does not store the sum if nothing else reads it.
TEST_CASE("a sum that only its norm reads needs no memory of its own") {
  const TestDevices devices;
  for (const int width : {40, 8200}) {
    const std::string x = fmt::format("bf16[\"batch=3 embed={}\"]", width);
    Trial trial({}, {x, x});
    output("norm", rms_norm(trial.inputs()[0] + trial.inputs()[1], {}, "embed", 1e-5));
    const Graph fused = fuse_norms(trial.graph());
    REQUIRE(fused.nodes().front().op == &kFusedNormOp);
    REQUIRE(fused.nodes().front().outputs.size() == 2);
    const ReferenceInputs inputs = random_inputs(fused, 7);
    REQUIRE(element_difference(run_launched(*devices.gpu, fused, inputs),
                               run_launched(*devices.gpu, trial.graph(), inputs)) == "");
  }
}

TEST_CASE("results of residuals may replace rows that the launch reads, and no weights") {
  const TestDevices devices;
  const Graph graph = fuse_norms(residual("f32[\"row=3 embed=8\"]", "f32[\"embed=8\"]", true));
  const auto pairs = [&](const Node& node) {
    const std::unique_ptr<Kernel> kernel = devices.gpu->prepare(graph, node);
    std::string text;
    for (int64_t o = 0; o < static_cast<int64_t>(node.outputs.size()); ++o)
      for (int64_t i = 0; i < static_cast<int64_t>(node.inputs.size()); ++i)
        if (kernel->may_overwrite(o, i)) text += fmt::format(" {}<-{}", o, i);
    return text;
  };
  // Operands x, y, scale, bias; results y, 1/sqrt, mean, sum.
  REQUIRE(pairs(graph.nodes().front()) == " 0<-0 0<-1 3<-0 3<-1");
  // Operands x, scale, 1/sqrt, mean, dy, cotangent; results dx, dscale, dbias.
  REQUIRE(pairs(graph.nodes().back()) == " 0<-0 0<-4 0<-5");
}

TEST_CASE("a norm of large values with a large mean keeps its precision on the virtual GPU") {
  const TestDevices devices;
  Trial trial({}, {"f32[\"batch=2 embed=300\"]"});
  layer_norm(trial.inputs()[0], {}, {}, "embed", 1e-5);
  std::vector<double> values(600);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 4096.0 + static_cast<double>(i % 7);
  // The mean is rounded to f32, with a spacing of 5e-4 at this magnitude.
  REQUIRE(kernel_mismatch(trial.graph(), {.tolerance_f32 = 3e-4,
                                          .given = {{"x", values}},
                                          .device = devices.gpu.get()}) == "");
}

TEST_CASE("softmax of every width agrees with its decomposition on the virtual GPU") {
  const TestDevices devices;
  const std::string dtype = GENERATE("f32", "bf16");
  const int width = GENERATE(1, 5, 16, 77, 264, 2000, 8200);
  const int64_t offset = GENERATE(0, 1);
  CAPTURE(dtype, width, offset);
  Trial trial({}, {fmt::format("{}[\"batch={} embed={}\"]", dtype, width < 100 ? 70 : 3, width)});
  softmax(trial.inputs()[0], "embed");
  traced_gradient(trial.graph(), first_node(trial));
  REQUIRE(kernel_mismatch(trial.graph(),
                          {.spread = 5.0, .device = devices.gpu.get(), .offset = offset}) == "");
}

void check_rotary(Device& gpu, const std::string& x, const std::string& positions,
                  RotaryStyle style, const RotaryStretch& stretch, int64_t offset) {
  CAPTURE(x, positions, style, offset);
  Trial trial({}, {x, positions});
  rotary(trial.inputs()[0], trial.inputs()[1], "head_dim", 10000.0, 1.0, style, stretch);
  traced_gradient(trial.graph(), first_node(trial));
  // Angles of 10^5 are reduced in double precision, as in the reference.
  REQUIRE(kernel_mismatch(trial.graph(),
                          {.max_integer = 100000, .device = &gpu, .offset = offset}) == "");
}

TEST_CASE("rotary embeddings of every shape agree with their decomposition on the virtual GPU") {
  const TestDevices devices;
  const std::string dtype = GENERATE("f32", "bf16");
  const RotaryStyle style = GENERATE(RotaryStyle::kHalf, RotaryStyle::kInterleaved);
  const int64_t offset = GENERATE(0, 1);
  for (const int size : {2, 6, 64, 2064}) {  // 2064: more pairs than a block rotates.
    const std::string x = fmt::format("{}[\"batch=2 seq=3 heads=2 head_dim={}\"]", dtype, size);
    check_rotary(*devices.gpu, x, "i32[\"batch=2 seq=3\"]", style, {}, offset);
  }
  const std::string x = dtype + "[\"batch=2 seq=3 heads=70 head_dim=16\"]";
  for (const std::string positions :
       {"i32[\"\"]", "i32[\"seq=3\"]", "i32[\"seq=3 batch=2\"]", "i32[\"heads=70\"]",
        "i32[\"heads=70 batch=2\"]", "i32[\"batch=2 seq=3 heads=70\"]"})
    check_rotary(*devices.gpu, x, positions, style, {.factor = 8.0, .length = 60.0}, offset);
  check_rotary(*devices.gpu, x, "i32[\"seq=3\"]", style, {.divisors = {1, 1, 2, 3, 5, 8, 13, 21}},
               offset);
  check_rotary(*devices.gpu, x, "i32[\"seq=3\"]", style,
               {.factor = 8.0, .low = -5.5, .high = -2.0, .length = 0.0, .index_step = -1.0},
               offset);
}

TEST_CASE("rotary positions along many separate axes are refused on CUDA, with advice") {
  const TestDevices devices;
  // Strides in reverse order, so that no two axes can be merged.
  Trial trial({}, {"f32[\"a=2 b=2 c=2 d=2 e=2 f=2 g=2 h=2 i=2 head_dim=2\"]",
                   "i32[\"i=2 h=2 g=2 f=2 e=2 d=2 c=2 b=2 a=2\"]"});
  rotary(trial.inputs()[0], trial.inputs()[1], "head_dim");
  const std::string error =
      error_of([&] { devices.gpu->prepare(trial.graph(), first_node(trial)); });
  REQUIRE(error.find("9 separate axes") != std::string::npos);
  REQUIRE(error.find("transpose") != std::string::npos);
}

}  // namespace
}  // namespace tessera::cuda
