// SPDX-License-Identifier: Apache-2.0
#include "core/compile/cost.h"

#include <algorithm>
#include <cmath>

#include "core/compile/fuse/fuse.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/repeat.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

TEST_CASE("A contraction costs two operations per term, an elementwise op one per element") {
  Trial trial(Mesh(), {"f32[\"row=4 inner=8\"]", "f32[\"inner=8 column=16\"]"});
  output("y", exp(einsum(trial.inputs()[0], trial.inputs()[1], over("inner"))));
  REQUIRE(graph_flops(trial.graph()) == 2 * 4 * 8 * 16 + 4 * 16);
}

TEST_CASE("Loops count every iteration, and fusion does not change counts") {
  Trial trial(Mesh(), {"f32[\"row=4\"]"});
  const RepeatResult result = repeat("layers", 5, {trial.inputs()[0]}, {},
                                     [](Tensor, std::vector<Tensor> x, std::vector<Tensor>) {
                                       return RepeatBody{{sin(x[0]) * x[0]}, {}};
                                     });
  output("y", result.carries[0]);
  REQUIRE(graph_flops(trial.graph()) == 5 * 2 * 4);
  REQUIRE(graph_flops(fuse(trial.graph())) == 5 * 2 * 4);
}

TEST_CASE("Attention costs the pairs of queries and keys that see each other") {
  constexpr int64_t kTokens = 1024, kDims = 16;
  const auto flops = [&](const AttentionOptions& options) {
    Trial trial(Mesh(), {"f32[\"batch=1 seq=1024 heads=1 head_dim=16\"]",
                         "f32[\"batch=1 key_seq=1024 kv_heads=1 head_dim=16\"]"});
    const std::vector<Tensor>& in = trial.inputs();
    output("y", attention(in[0], in[1], in[1], options));
    return graph_flops(trial.graph());
  };
  const auto of_pairs = [](double pairs) { return 2.0 * 2.0 * kDims * pairs; };
  REQUIRE(flops({.mask = AttentionMask::kFull}) == of_pairs(kTokens * kTokens));
  for (const int64_t window : {0, 1, 100, 512, 1024, 5000}) {
    INFO("window " << window);
    double pairs = 0.0;
    for (int64_t query = 1; query <= kTokens; ++query)
      pairs += static_cast<double>(window == 0 ? query : std::min(query, window));
    // The diagonal counts as half, here and in the usual formulas.
    REQUIRE(std::abs(flops({.window = window}) - of_pairs(pairs)) <= of_pairs(kTokens));
  }
  for (const int64_t after : {1, 100, 1023}) {
    INFO(after << " keys on both sides");
    double pairs = 0.0;
    for (int64_t query = 0; query < kTokens; ++query)
      pairs +=
          static_cast<double>(std::min(query, after) + 1 + std::min(kTokens - 1 - query, after));
    const double got = flops({.window = 2 * after + 1, .first_query = after});
    REQUIRE(std::abs(got - of_pairs(pairs)) <= of_pairs(kTokens));
  }
}

}  // namespace
}  // namespace tessera
