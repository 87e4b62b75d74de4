// SPDX-License-Identifier: Apache-2.0
// Kernels of composite ops on the CPU against their decompositions: both dtypes, widths with and
// without tails, in place and not, on one thread and more, and on each vector target of this
// processor, not only on the best.
#include <limits>
#include <optional>

#include <fmt/core.h>
#include <hwy/targets.h>

#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/random.h"
#include "core/ops/rotary.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// The node that was traced first. Results may be views of its outputs.
Node first_node(Trial& trial) { return trial.graph().nodes().front(); }

TEST_CASE("softmax agrees with its decomposition") {
  const std::string dtype = GENERATE("f32", "bf16");
  const int width = GENERATE(1, 5, 16, 77);
  CAPTURE(dtype, width);
  Trial trial({}, {fmt::format("{}[\"batch=7 embed={}\"]", dtype, width)});
  softmax(trial.inputs()[0], "embed");
  traced_gradient(trial.graph(), first_node(trial));
  REQUIRE(kernel_mismatch(trial.graph(), {.spread = 5.0}) == "");
}

TEST_CASE("cross-entropy agrees with its decomposition") {
  const std::string dtype = GENERATE("f32", "bf16");
  const int vocab = GENERATE(3, 32, 1023, 2500);
  const double smoothing = GENERATE(0.0, 0.1);
  const double z_loss = GENERATE(0.0, 1e-2);
  const double cap = GENERATE(0.0, 30.0);
  const double spread = GENERATE(1.0, 40.0);
  CAPTURE(dtype, vocab, smoothing, z_loss, cap, spread);
  Trial trial(
      {}, {fmt::format("{}[\"batch=2 seq=3 vocab={}\"]", dtype, vocab), "i32[\"batch=2 seq=3\"]"});
  cross_entropy(trial.inputs()[0], trial.inputs()[1], "vocab",
                {.label_smoothing = smoothing, .z_loss = z_loss, .soft_cap = cap});
  traced_gradient(trial.graph(), first_node(trial));
  REQUIRE(kernel_mismatch(trial.graph(), {.max_integer = vocab, .spread = spread}) == "");
}

TEST_CASE("cross-entropy propagates NaN, and accepts a first chunk of -inf") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Trial trial({}, {"f32[\"batch=2 vocab=2000\"]", "i32[\"batch=2\"]"});
  cross_entropy(trial.inputs()[0], trial.inputs()[1], "vocab");
  traced_gradient(trial.graph(), first_node(trial));
  std::vector<double> logits(4000, 1.0);
  std::fill(logits.begin(), logits.begin() + 1500, -infinity);
  logits[2700] = nan;
  REQUIRE(kernel_mismatch(trial.graph(), {.given = {{"x", logits}, {"y", {1600, 5}}}}) == "");
}

TEST_CASE("rotary embedding agrees with its decomposition") {
  const std::string dtype = GENERATE("f32", "bf16");
  const int head_dim = GENERATE(2, 6, 32, 70);
  const RotaryStyle style = GENERATE(RotaryStyle::kHalf, RotaryStyle::kInterleaved);
  const std::string positions = GENERATE("batch=3 seq=5", "seq=5", "heads=2 batch=3", "");
  const int farthest = GENERATE(5, 1000000);
  CAPTURE(dtype, head_dim, positions, farthest);
  Trial trial({}, {fmt::format("{}[\"batch=3 seq=5 heads=2 head_dim={}\"]", dtype, head_dim),
                   fmt::format("i32[\"{}\"]", positions)});
  rotary(trial.inputs()[0], trial.inputs()[1], "head_dim", 10000.0, 1.0, style);
  traced_gradient(trial.graph(), first_node(trial));
  REQUIRE(kernel_mismatch(trial.graph(), {.max_integer = farthest}) == "");
}

TEST_CASE("Adam agrees with its decomposition, and does not change the state of a skipped step") {
  const int size = GENERATE(1, 100, 20000);
  const bool corrected = GENERATE(false, true);
  const double apply = GENERATE(0.0, 1.0);
  const double count = GENERATE(0.0, 7.0);
  CAPTURE(size, corrected, apply, count);
  const std::string state = fmt::format("f32[\"embed={}\"]", size);
  Trial trial({}, {state, state, state, state, "f32[\"\"]"});
  const std::vector<Tensor>& in = trial.inputs();
  const Tensor steps = input("count", InputKind::kScalar, make_type(DType::kF32, {}));
  const Tensor scale = input("scale", InputKind::kScalar, make_type(DType::kF32, {}));
  const Tensor flag = input("apply", InputKind::kScalar, make_type(DType::kBool, {}));
  adam_update({in[0], in[1], in[2]}, in[3], in[4], steps, scale, flag,
              {.beta2 = 0.95, .weight_decay = 0.1, .bias_corrected_decay = corrected});
  // Second moments are never negative.
  KernelCheck check{.given = {{"z", std::vector<double>(static_cast<size_t>(size), 0.5)},
                              {"v", {1e-2}},
                              {"count", {count}},
                              {"scale", {0.7}},
                              {"apply", {apply}}}};
  REQUIRE(kernel_mismatch(trial.graph(), check) == "");
}

TEST_CASE("dropout draws the values of the formulas, for a whole batch and for microbatches") {
  const std::string dtype = GENERATE("f32", "bf16");
  const int embed = GENERATE(1, 9, 700);
  const int stride = GENERATE(0, 1, 3);
  CAPTURE(dtype, embed, stride);
  Trial trial(
      {}, {fmt::format("{}[\"batch=3 seq=5 embed={}\"]", dtype, embed), "i32[\"\"]", "i32[\"\"]"});
  const SeedScope seed(42);
  const PathScope path("lm.x_layers[3].drop");
  std::optional<ExampleScope> examples;
  if (stride > 0) examples.emplace(trial.inputs()[2], stride);
  dropout(trial.inputs()[0], 0.1, trial.inputs()[1]);
  random_uniform(trial.inputs()[0].type().axes, trial.inputs()[1]);
  REQUIRE(kernel_mismatch(trial.graph(), {.given = {{"y", {5}}, {"z", {7}}}}) == "");
}

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

using Tensors = std::vector<Tensor>;

// The errors of the kernels of the first node and its gradient, over all targets.
std::string mismatch_on_targets(const std::vector<std::string>& types,
                                const std::function<void(const Tensors&)>& apply) {
  Trial trial({}, types);
  apply(trial.inputs());
  traced_gradient(trial.graph(), Node(trial.graph().nodes().front()));
  std::string found;
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    const std::string problem = kernel_mismatch(trial.graph(), {.max_integer = 37});
    if (!problem.empty()) found += std::string(hwy::TargetName(target)) + ": " + problem + "\n";
  }
  hwy::SetSupportedTargetsForTest(0);
  return found;
}

TEST_CASE("kernels of composite ops agree with their decompositions on every vector target") {
  const std::string dtype = GENERATE("f32", "bf16");
  CAPTURE(dtype);
  const std::string hidden = dtype + "[\"batch=3 seq=5 embed=37\"]";
  const std::string weights = "f32[\"embed=37\"]";
  const std::string q = dtype + "[\"batch=1 seq=70 heads=2 head_dim=21\"]";
  const std::string kv = dtype + "[\"batch=1 key_seq=70 kv_heads=1 head_dim=21\"]";
  REQUIRE(mismatch_on_targets({hidden, weights, weights}, [](const Tensors& in) {
            layer_norm(in[0], in[1], in[2], "embed", 1e-5);
          }) == "");
  REQUIRE(mismatch_on_targets({hidden}, [](const Tensors& in) { softmax(in[0], "embed"); }) == "");
  REQUIRE(mismatch_on_targets({hidden, "i32[\"batch=3 seq=5\"]"}, [](const Tensors& in) {
            cross_entropy(in[0], in[1], "embed", {.label_smoothing = 0.1, .soft_cap = 5.0});
          }) == "");
  for (const RotaryStyle style : {RotaryStyle::kHalf, RotaryStyle::kInterleaved})
    REQUIRE(mismatch_on_targets({dtype + "[\"batch=3 seq=5 head_dim=22\"]", "i32[\"seq=5\"]"},
                                [&](const Tensors& in) {
                                  rotary(in[0], in[1], "head_dim", 10000.0, 1.0, style);
                                }) == "");
  REQUIRE(mismatch_on_targets({hidden, "i32[\"\"]"},
                              [](const Tensors& in) { dropout(in[0], 0.3, in[1]); }) == "");
  REQUIRE(mismatch_on_targets({q, kv, kv}, [](const Tensors& in) {
            attention(in[0], in[1], in[2], {.scale = 0.2, .logit_cap = 3.0});
          }) == "");
}

}  // namespace

}  // namespace tessera
