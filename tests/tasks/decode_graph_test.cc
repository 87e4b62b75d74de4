// SPDX-License-Identifier: Apache-2.0
// Decoding with a cache gives the logits of the whole forward pass: for each kind of model, for
// prompts of different lengths in chunks of any size, on meshes, in f32 and bf16.
#include <cmath>
#include <cstring>
#include <random>

#include "core/base/error.h"
#include "layers/models/transformer.h"
#include "tests/support/catch.h"
#include "tests/support/decode_trial.h"
#include "tests/support/spmd_case.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

constexpr int64_t kLength = 16;  // Also the size of the position tables.

TokenRows random_rows(size_t count) {
  std::mt19937 random(7);
  TokenRows rows(count);
  for (auto& row : rows)
    for (int64_t i = 0; i < kLength; ++i) row.push_back(static_cast<int32_t>(random() % 64));
  return rows;
}

std::unique_ptr<BaseTask> task_of(const SpmdCase& trial) {
  return Template<BaseTask>(spmd_task(trial)).instantiate();
}

DecodeSetting setting_of(const SpmdCase& trial, int64_t batch) {
  const TrialRules& rules = trial.rules();
  return {.mesh = trial.mesh(),
          .rules = {parse_rules(rules.weights), parse_rules(rules.activations)},
          .batch = batch,
          .cache_length = kLength};
}

// The largest difference of logits over all positions from the end of each prompt, relative to the
// largest logit. Prompts have lengths 1, 4, 7, … and are read in chunks.
double worst_difference(const SpmdCase& trial, int64_t batch, int64_t chunk) {
  const auto task = task_of(trial);
  const TokenRows rows = random_rows(static_cast<size_t>(batch));
  const auto expected = whole_logits(*task_of(trial.on_one_device()), kLength, rows);
  const size_t vocab = expected[0].size() / kLength;
  DecodeTrial decoder(*task, setting_of(trial, batch), {1, chunk});

  double worst = 0.0, largest = 0.0;
  std::vector<size_t> prompt;
  for (size_t row = 0; row < rows.size(); ++row) prompt.push_back(1 + (row * 3) % 10);
  for (const bool prompts : {true, false}) {
    for (;;) {
      TokenRows tokens;
      size_t taken = 0;
      for (size_t row = 0; row < rows.size(); ++row) {
        const auto from = static_cast<size_t>(decoder.length(row));
        const size_t end = prompts ? prompt[row] : size_t{kLength};
        const size_t count = std::min(end - from, static_cast<size_t>(prompts ? chunk : 1));
        tokens.emplace_back(rows[row].begin() + static_cast<int64_t>(from),
                            rows[row].begin() + static_cast<int64_t>(from + count));
        taken += count;
      }
      if (taken == 0) break;
      const auto logits = decoder.take(prompts ? chunk : 1, tokens);
      for (size_t row = 0; row < rows.size(); ++row) {
        if (tokens[row].empty()) continue;
        const auto at = static_cast<size_t>(decoder.length(row)) - 1;
        for (size_t i = 0; i < vocab; ++i) {
          const float want = expected[row][at * vocab + i];
          largest = std::max(largest, std::abs(static_cast<double>(want)));
          worst = std::max(worst, std::abs(static_cast<double>(want) - logits[row][i]));
        }
      }
    }
  }
  REQUIRE(largest > 0.1);
  return worst / std::max(largest, 1.0);
}

TEST_CASE("decoding token by token gives the logits of the whole forward pass") {
  const TrialModel model = GENERATE(TrialModel::kGpt2, TrialModel::kLlama, TrialModel::kPax);
  const bool repeated = GENERATE(false, true);
  const int64_t chunk = GENERATE(1, 3, 16);
  const SpmdCase trial{.model = model, .repeated = repeated};
  CAPTURE(trial.text(), chunk);
  REQUIRE(worst_difference(trial, 4, chunk) < 1e-4);
}

// Cached keys and values are rounded as in the whole pass. Products are summed in another order,
// which changes some roundings by one unit (2^-8) in the many terms of a logit.
TEST_CASE("decoding in bf16 stays within 2^-5 of the largest logit of the whole forward pass") {
  const TrialModel model = GENERATE(TrialModel::kGpt2, TrialModel::kLlama, TrialModel::kPax);
  const std::vector<int64_t> ici =
      GENERATE(std::vector<int64_t>{1, 1, 1}, std::vector<int64_t>{1, 2, 2});
  const SpmdCase trial{.model = model,
                       .ici = ici,
                       .strategy = ici[1] == 1 ? "replica" : "tensor",
                       .repeated = true,
                       .compute = DType::kBF16};
  CAPTURE(trial.text());
  REQUIRE(worst_difference(trial, 4, 5) < 1.0 / 32.0);
}

TEST_CASE("decoding on meshes gives the logits of the whole forward pass on one device") {
  const TrialModel model = GENERATE(TrialModel::kGpt2, TrialModel::kLlama, TrialModel::kPax);
  const auto [ici, strategy] =
      GENERATE(table<std::vector<int64_t>, std::string>({{{1, 2, 1}, "replica"},
                                                         {{1, 2, 1}, "fsdp"},
                                                         {{1, 1, 2}, "tensor"},
                                                         {{1, 2, 2}, "fsdp and sequence"}}));
  const SpmdCase trial{
      .model = model, .ici = ici, .strategy = strategy, .repeated = model != TrialModel::kLlama};
  CAPTURE(trial.text());
  REQUIRE(worst_difference(trial, 4, 5) < 1e-4);
}

}  // namespace
}  // namespace tessera
