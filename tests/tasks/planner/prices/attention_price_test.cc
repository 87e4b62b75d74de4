// SPDX-License-Identifier: Apache-2.0
// Prices of attention on GPUs against what was measured on one H100 (docs/performance.md), and
// whose kernels they are.
#include <string>
#include <utility>
#include <vector>

#include "core/compile/cost.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "tasks/planner/prices/roofline.h"
#include "tests/support/attention_trial.h"
#include "tests/support/catch.h"
#include "tests/support/hardware.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Kernels = AttentionKernels;

// Prices of causal attention and of its gradient.
struct Prices {
  AttentionPrice forward, gradient;
  double forward_flops = 0.0;
};
Prices prices(const AttentionSizes& sizes, const std::string& dtype, const Hardware& hardware,
              double logit_cap = 0.0, bool packed = false) {
  Trial trial({}, attention_types(sizes, dtype));
  const std::vector<Tensor>& in = trial.inputs();
  AttentionOptions options{.scale = 0.125, .logit_cap = logit_cap};
  if (packed) options.segment_ids = in[3];
  attention(in[0], in[1], in[2], options);
  Graph& graph = trial.graph();
  traced_gradient(graph, Node(graph.nodes().back()));
  Prices result;
  for (const Node& node : graph.nodes()) {
    const double flops = node_flops(graph, node);
    if (node.op == &kAttentionOp) {
      result.forward = attention_price(graph, node, flops, hardware);
      result.forward_flops = flops;
    } else if (node.op == &kAttentionGradOp) {
      result.gradient = attention_price(graph, node, flops, hardware);
    }
  }
  return result;
}

Hardware h100(Kernels kernels) {
  Hardware hardware = hardware_named("h100");
  hardware.attention->forward = hardware.attention->gradient = kernels;
  return hardware;
}

// Checks the rates in TFLOP/s, where a gradient counts as two forward passes.
void check_rates(const Prices& prices, double forward, double gradient, double tolerance) {
  constexpr double kTera = 1e12;
  REQUIRE(prices.forward_flops / prices.forward.seconds / kTera ==
          Approx(forward).epsilon(tolerance));
  REQUIRE(2.0 * prices.forward_flops / prices.gradient.seconds / kTera ==
          Approx(gradient).epsilon(tolerance));
}

TEST_CASE("prices of own attention kernels are within 6 % of measured times") {
  const Hardware hardware = h100(Kernels::kOwn);
  check_rates(prices({32, 1024, 1024, 12, 12, 64}, "bf16", hardware), 185, 91, 0.06);
  check_rates(prices({8, 2048, 2048, 16, 16, 128}, "bf16", hardware), 225, 127, 0.06);
  check_rates(prices({8, 2048, 2048, 16, 4, 128}, "bf16", hardware), 231, 118, 0.06);
}

TEST_CASE("prices of cuDNN's attention are within 12 % of measured times") {
  const Hardware hardware = h100(Kernels::kCudnn);
  check_rates(prices({32, 1024, 1024, 12, 12, 64}, "bf16", hardware), 308, 155, 0.12);
  check_rates(prices({8, 2048, 2048, 16, 16, 128}, "bf16", hardware), 533, 288, 0.12);
}

TEST_CASE("a deterministic gradient by cuDNN has a price") {
  const AttentionSizes sizes{4, 1024, 1024, 8, 8, 64};
  const Prices by_cudnn = prices(sizes, "bf16", h100(Kernels::kCudnn));
  REQUIRE(by_cudnn.gradient.determinism == Approx(0.07 * by_cudnn.gradient.seconds));
  REQUIRE(by_cudnn.forward.determinism == 0.0);
  REQUIRE(prices(sizes, "bf16", h100(Kernels::kOwn)).gradient.determinism == 0.0);
}

TEST_CASE("packed rows are computed by own kernels, which skip tiles of other documents") {
  const AttentionSizes sizes{8, 2048, 2048, 16, 16, 128};
  const Prices whole = prices(sizes, "bf16", h100(Kernels::kOwn)),
               packed = prices(sizes, "bf16", h100(Kernels::kCudnn), 0.0, true);
  REQUIRE(packed.forward.kernels == Kernels::kOwn);
  REQUIRE(packed.gradient.kernels == Kernels::kOwn);
  // Measured on an H100 with three documents a row.
  REQUIRE(packed.forward.seconds == Approx(0.395e-3).epsilon(0.1));
  REQUIRE(packed.gradient.seconds == Approx(1.26e-3).epsilon(0.15));
  REQUIRE(packed.forward.seconds == Approx(0.7 * whole.forward.seconds));
}

TEST_CASE("the kernels that are priced are those that a run would use") {
  const AttentionSizes sizes{4, 1024, 1024, 8, 8, 64};
  const auto kernels = [&](const std::string& name, const std::string& dtype,
                           const AttentionSizes& each) {
    const Prices both = prices(each, dtype, hardware_named(name));
    return std::pair(both.forward.kernels, both.gradient.kernels);
  };
  REQUIRE(kernels("h100", "bf16", sizes) == std::pair(Kernels::kCudnn, Kernels::kCudnn));
  REQUIRE(kernels("b200", "bf16", sizes) == std::pair(Kernels::kCudnn, Kernels::kOwn));
  REQUIRE(kernels("a100", "bf16", sizes) == std::pair(Kernels::kOwn, Kernels::kOwn));
  // cuDNN has no f32, and no rows of broken units of 16 bytes.
  REQUIRE(kernels("h100", "f32", sizes) == std::pair(Kernels::kOwn, Kernels::kOwn));
  REQUIRE(kernels("h100", "bf16", {4, 1024, 1024, 8, 8, 60}).first == Kernels::kOwn);
  REQUIRE(kernels("tpu_v4", "bf16", sizes).first == Kernels::kPublished);
}

TEST_CASE("a cap of scores, few blocks and a small multiprocessor cost time") {
  const AttentionSizes sizes{8, 1024, 1024, 16, 16, 128};
  for (const Kernels kernels : {Kernels::kOwn, Kernels::kCudnn}) {
    const Prices plain = prices(sizes, "bf16", h100(kernels)),
                 capped = prices(sizes, "bf16", h100(kernels), 50.0);
    REQUIRE(capped.forward.seconds > 1.1 * plain.forward.seconds);
    REQUIRE(capped.gradient.seconds > 1.05 * plain.gradient.seconds);
  }
  // 16 blocks on 132 multiprocessors take as long as 132 would.
  const AttentionSizes few{1, 1024, 1024, 1, 1, 128};
  const Prices one = prices(few, "bf16", h100(Kernels::kOwn));
  const Prices eight = prices({8, 1024, 1024, 1, 1, 128}, "bf16", h100(Kernels::kOwn));
  REQUIRE(one.forward.seconds == Approx(eight.forward.seconds).epsilon(0.05));
  // One block of 88 KiB instead of two.
  Hardware small = h100(Kernels::kOwn);
  small.multiprocessors->shared_memory_bytes = 100 << 10;
  REQUIRE(prices(sizes, "bf16", small).forward.seconds >
          1.5 * prices(sizes, "bf16", h100(Kernels::kOwn)).forward.seconds);
}

}  // namespace
}  // namespace tessera
