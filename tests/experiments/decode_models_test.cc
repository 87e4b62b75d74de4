// SPDX-License-Identifier: Apache-2.0
// Decoding with less common models: seqax's, with explicit layouts, and Pax's c4 recipe (combined
// projections in a loop, sinusoids, capped logits), on one device and on meshes; and BERT's logits.
#include <algorithm>
#include <cmath>

#include "plugins/configure.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tests/support/catch.h"
#include "tests/support/decode_trial.h"

namespace tessera {
namespace {

constexpr int64_t kLength = 12;

// The largest difference of the logits when tokens are decoded five, then one at a time.
double difference(const std::string& experiment, const std::vector<std::string>& settings,
                  const std::vector<int64_t>& ici) {
  const ExperimentEntry entry = find_experiment(experiment, plugin_path({}));
  const ConfiguredExperiment configured = configure(entry, settings);
  const auto task = configured.config.task.instantiate();
  const TokenRows rows = {{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8},
                          {2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5}};
  const auto expected = whole_logits(*task, kLength, rows);
  const size_t vocab = expected[0].size() / kLength;
  DecodeTrial decoder(*task,
                      {.mesh = Mesh::standard(ici),
                       .rules = {parse_rules(configured.config.rules.weights),
                                 parse_rules(configured.config.rules.activations)},
                       .batch = 2,
                       .cache_length = kLength},
                      {1, 5});
  double worst = 0.0, largest = 0.0;
  for (int64_t at = 0; at < kLength;) {
    const int64_t chunk = at == 0 ? 5 : 1;
    TokenRows tokens;
    for (const auto& row : rows) tokens.emplace_back(row.begin() + at, row.begin() + at + chunk);
    at += chunk;
    const auto logits = decoder.take(chunk, tokens);
    for (size_t row = 0; row < rows.size(); ++row) {
      for (size_t i = 0; i < vocab; ++i) {
        const double want = expected[row][static_cast<size_t>(at - 1) * vocab + i];
        largest = std::max(largest, std::abs(want));
        worst = std::max(worst, std::abs(want - logits[row][i]));
      }
    }
  }
  REQUIRE(largest > 0.1);
  return worst / std::max(largest, 1.0);
}

TEST_CASE("decoding with seqax's model gives the logits of its forward pass, also on meshes") {
  const std::vector<int64_t> ici = GENERATE(
      std::vector<int64_t>{1, 1, 1}, std::vector<int64_t>{1, 2, 1}, std::vector<int64_t>{1, 2, 2});
  REQUIRE(difference("seqax.LocalSynthetic", {"compute_dtype=f32", "num_layers=2"}, ici) < 1e-4);
}

TEST_CASE("decoding with Pax's c4 recipe gives the logits of its forward pass, also on a mesh") {
  const std::vector<int64_t> ici =
      GENERATE(std::vector<int64_t>{1, 1, 1}, std::vector<int64_t>{1, 2, 1});
  REQUIRE(difference("c4.Spmd1BSmoke", {"compute_dtype=f32"}, ici) < 1e-4);
}

TEST_CASE("in bert a token's logits depend on later tokens of its row") {
  const ExperimentEntry entry = find_experiment("bert.SpmdL4H128", plugin_path({}));
  const auto task = configure(entry, {"num_layers=2", "model_dims=32", "dims_per_head=8",
                                      "hidden_dims=64", "vocab_size=64", "compute_dtype=f32"})
                        .config.task.instantiate();
  const TokenRows rows = {{3, 1, 4, 1, 5, 9, 2, 6}, {3, 1, 4, 1, 5, 9, 2, 7}};
  const auto logits = whole_logits(*task, 8, rows);
  double difference = 0.0;
  for (size_t i = 0; i < 64; ++i)  // Logits of the first token.
    difference = std::max<double>(difference, std::abs(logits[0][i] - logits[1][i]));
  REQUIRE(difference > 1e-3);
}

}  // namespace
}  // namespace tessera
