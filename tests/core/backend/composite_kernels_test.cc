// SPDX-License-Identifier: Apache-2.0
// Kernels of composite ops on the CPU against their decompositions, in both dtypes, with and
// without tails, in place and not.
#include <limits>
#include <optional>

#include <fmt/core.h>

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

}  // namespace
}  // namespace tessera
