// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU, forward and backward, against its decomposition: head sizes with and
// without tails, grouped queries, several blocks of queries and keys, masks of both kinds.
#include <fmt/core.h>

#include "core/devices/cpu/device.h"
#include "tests/support/attention_trial.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

TEST_CASE("attention agrees with its decomposition") {
  const std::string dtype = GENERATE("f32", "bf16");
  const AttentionSizes sizes =
      GENERATE(AttentionSizes{1, 1, 1, 1, 1, 1}, AttentionSizes{2, 17, 17, 2, 1, 8},
               AttentionSizes{2, 70, 70, 4, 2, 20}, AttentionSizes{1, 64, 300, 2, 2, 16},
               AttentionSizes{1, 130, 40, 3, 1, 33});
  const bool causal = GENERATE(false, true);
  const bool segments = GENERATE(false, true);
  const double cap = GENERATE(0.0, 2.0);
  CAPTURE(dtype, sizes.queries, sizes.keys, sizes.heads, sizes.head_dim, causal, segments, cap);
  const AttentionOptions options{.mask = causal ? AttentionMask::kCausal : AttentionMask::kFull,
                                 .scale = 0.4,
                                 .logit_cap = cap};
  // With more segment ids than keys, some queries see no key.
  const KernelCheck check{.max_integer = 4, .threads = causal ? 3 : 1};
  REQUIRE(attention_mismatch(sizes, dtype, options, segments, check) == "");
}

TEST_CASE("attention over several blocks of keys is exact for extreme scores") {
  const std::string dtype = GENERATE("f32", "bf16");
  const double spread = GENERATE(1.0, 6.0);
  // Probabilities near 0 and 1 cancel in the gradient. Its error is the error of the scores, which
  // are up to 600 here.
  const KernelCheck check{
      .tolerance_f32 = spread > 1.0 ? 3e-4 : 2e-5, .tolerance_bf16 = 2e-2, .spread = spread};
  REQUIRE(attention_mismatch({1, 330, 330, 2, 1, 16}, dtype, {}, false, check) == "");
}

TEST_CASE("packed documents do not attend to each other across blocks") {
  const AttentionSizes sizes{1, 600, 600, 1, 1, 8};
  std::vector<double> segments;
  for (int i = 0; i < 600; ++i) segments.push_back(i < 290 ? 1 : i < 300 ? 2 : 3);
  const KernelCheck check{.given = {{"u", segments}, {"v", segments}}};
  REQUIRE(attention_mismatch(sizes, "f32", {.scale = 0.4}, true, check) == "");
}

TEST_CASE("attention in a window agrees with its decomposition") {
  const std::string dtype = GENERATE("f32", "bf16");
  const auto sizes =
      GENERATE(AttentionSizes{2, 70, 70, 4, 2, 20}, AttentionSizes{1, 600, 600, 2, 1, 8},
               AttentionSizes{1, 130, 40, 3, 1, 33});
  const int64_t window = GENERATE(2, 5, 64, 300);
  CAPTURE(dtype, sizes.queries, sizes.keys, window);
  const KernelCheck check{.tolerance_bf16 = 2e-2, .max_integer = 4, .threads = window > 5 ? 3 : 1};
  const AttentionOptions options{.scale = 0.4, .window = window};
  REQUIRE(attention_mismatch(sizes, dtype, options, window == 5, check) == "");
}

TEST_CASE("attention with keys before the first query agrees with its decomposition") {
  const std::string dtype = GENERATE("f32", "bf16");
  const auto sizes =
      GENERATE(AttentionSizes{2, 70, 130, 4, 2, 20}, AttentionSizes{1, 300, 620, 2, 1, 8},
               AttentionSizes{1, 130, 40, 3, 1, 33});
  const int64_t window = GENERATE(0, 2, 64, 300);
  const bool all_before = GENERATE(false, true);
  const int64_t first = all_before ? std::max(sizes.keys - sizes.queries, 30) : 7;
  CAPTURE(dtype, sizes.queries, sizes.keys, window, first);
  const KernelCheck check{.tolerance_bf16 = 2e-2, .max_integer = 4, .threads = window > 5 ? 3 : 1};
  const AttentionOptions options{.scale = 0.4, .window = window, .first_query = first};
  REQUIRE(attention_mismatch(sizes, dtype, options, window == 64, check) == "");
}

TEST_CASE("cached attention in a window agrees with its decomposition, over runs of keys") {
  const std::string dtype = GENERATE("f32", "bf16");
  const auto sizes =
      GENERATE(AttentionSizes{4, 1, 600, 8, 2, 24}, AttentionSizes{4, 3, 513, 4, 4, 20},
               AttentionSizes{4, 33, 300, 4, 2, 24});
  const int64_t window = GENERATE(0, 1, 20, 260);
  CAPTURE(dtype, sizes.queries, sizes.keys, window);
  Trial trial({}, cache_types(sizes, dtype));
  // Starts before, at the beginning of, inside, and past the end of the cache.
  const KernelCheck check{.given = {{"u", {-2, 0, 270, 700}}}};
  const std::vector<Tensor>& in = trial.inputs();
  cached_attention(in[0], in[1], in[2], in[3], {.scale = 0.3, .window = window});
  REQUIRE(kernel_mismatch(trial.graph(), check) == "");
}

TEST_CASE("attention and its gradient have the same bits for any number of threads") {
  const std::string dtype = GENERATE("f32", "bf16");
  const AttentionSizes sizes =
      GENERATE(AttentionSizes{1, 600, 600, 4, 1, 16}, AttentionSizes{2, 130, 300, 2, 2, 20});
  Trial trial({}, attention_types(sizes, dtype));
  const std::vector<Tensor>& in = trial.inputs();
  attention(in[0], in[1], in[2], {.scale = 0.3});
  const std::vector<Tensor> results =
      traced_gradient(trial.graph(), Node(trial.graph().nodes().back()));
  for (size_t i = 0; i < 3; ++i)
    trial.graph().add_output(fmt::format("gradient {}", i), results[i].id());
  const ReferenceInputs inputs = random_inputs(trial.graph(), 3);
  const auto one = run_on_cpu(trial.graph(), inputs, *make_cpu_device(1));
  for (const int threads : {2, 3, 7})  // More than key heads, too.
    REQUIRE(run_on_cpu(trial.graph(), inputs, *make_cpu_device(threads)) == one);
}

}  // namespace
}  // namespace tessera
