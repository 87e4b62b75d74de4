// SPDX-License-Identifier: Apache-2.0
// Kernels of composite ops on each vector target of this processor, not only on the best.
#include <hwy/targets.h>

#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/norm.h"
#include "core/ops/random.h"
#include "core/ops/rotary.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

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
