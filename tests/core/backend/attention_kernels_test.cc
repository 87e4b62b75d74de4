// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU, forward and backward, against its decomposition: head sizes with and
// without tails, grouped queries, several blocks of queries and keys, masks of both kinds.
#include <fmt/core.h>

#include "core/backend/cpu/device.h"
#include "core/ops/attention.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

struct Sizes {
  int batch, queries, keys, heads, kv_heads, head_dim;
};

std::vector<std::string> types_of(const Sizes& sizes, const std::string& dtype) {
  const std::string kv = fmt::format("{}[\"batch={} key_seq={} kv_heads={} head_dim={}\"]", dtype,
                                     sizes.batch, sizes.keys, sizes.kv_heads, sizes.head_dim);
  return {fmt::format("{}[\"batch={} seq={} heads={} head_dim={}\"]", dtype, sizes.batch,
                      sizes.queries, sizes.heads, sizes.head_dim),
          kv, kv, fmt::format("i32[\"batch={} seq={}\"]", sizes.batch, sizes.queries),
          fmt::format("i32[\"batch={} key_seq={}\"]", sizes.batch, sizes.keys)};
}

// The errors of the kernels of attention and its gradient against their decompositions.
std::string attention_mismatch(const Sizes& sizes, const std::string& dtype,
                               AttentionOptions options, bool segments, const KernelCheck& check) {
  Trial trial({}, types_of(sizes, dtype));
  const std::vector<Tensor>& in = trial.inputs();
  if (segments) options.segment_ids = in[3], options.key_segment_ids = in[4];
  attention(in[0], in[1], in[2], options);
  traced_gradient(trial.graph(), Node(trial.graph().nodes().back()));
  return kernel_mismatch(trial.graph(), check);
}

TEST_CASE("attention agrees with its decomposition") {
  const std::string dtype = GENERATE("f32", "bf16");
  const Sizes sizes =
      GENERATE(Sizes{1, 1, 1, 1, 1, 1}, Sizes{2, 17, 17, 2, 1, 8}, Sizes{2, 70, 70, 4, 2, 20},
               Sizes{1, 64, 300, 2, 2, 16}, Sizes{1, 130, 40, 3, 1, 33});
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
  // Probabilities near 0 and 1 cancel in the gradient; its error is that of the scores, which are
  // up to 600 here.
  const KernelCheck check{
      .tolerance_f32 = spread > 1.0 ? 3e-4 : 2e-5, .tolerance_bf16 = 2e-2, .spread = spread};
  REQUIRE(attention_mismatch({1, 330, 330, 2, 1, 16}, dtype, {}, false, check) == "");
}

TEST_CASE("packed documents do not attend to each other across blocks") {
  const Sizes sizes{1, 600, 600, 1, 1, 8};
  std::vector<double> segments;
  for (int i = 0; i < 600; ++i) segments.push_back(i < 290 ? 1 : i < 300 ? 2 : 3);
  const KernelCheck check{.given = {{"u", segments}, {"v", segments}}};
  REQUIRE(attention_mismatch(sizes, "f32", {.scale = 0.4}, true, check) == "");
}

TEST_CASE("attention and its gradient have the same bits for any number of threads") {
  const std::string dtype = GENERATE("f32", "bf16");
  const Sizes sizes = GENERATE(Sizes{1, 600, 600, 4, 1, 16}, Sizes{2, 130, 300, 2, 2, 20});
  Trial trial({}, types_of(sizes, dtype));
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
