// SPDX-License-Identifier: Apache-2.0
// Decoding with a cache gives the logits of the whole forward pass: for each kind of model, for
// prompts of different lengths in chunks of any size, on meshes, in f32 and bf16.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "core/base/error.h"
#include "core/devices/reference/interpreter.h"
#include "layers/models/transformer.h"
#include "tests/support/catch.h"
#include "tests/support/decode_trial.h"
#include "tests/support/layer_trial.h"
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
  const SpmdCase trial{.model = model, .repeated = repeated, .attention_bias = true};
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

// In double precision, evaluated by the reference interpreter, decoding in chunks and the whole
// forward pass agree, so that rounding hides no error in masks, positions or cache rows.

constexpr int64_t kShortLength = 10, kBatch = 2;

ReferenceInputs weights_of(const BaseTask& task) {
  ReferenceInputs weights;
  for (const Parameter& each : task.model().parameters().parameters())
    weights[each.path] = initial_values(each);
  return weights;
}

std::vector<double> zeros_like(const Graph& graph, const GraphInput& input) {
  return std::vector<double>(static_cast<size_t>(graph.type(input.value).elements()), 0.0);
}

// The whole forward pass of one row.
std::vector<double> whole(const BaseTask& task, ReferenceInputs inputs,
                          const std::vector<double>& row) {
  Batch batch;
  for (const char* name : {"ids", "segment_ids", "segment_pos"})
    batch[name] = HostArray{DType::kI32, {"batch", "seq"}, {1, kShortLength}, {}};
  const Graph graph = task.logits_graph({Mesh(), {}, batch}, Weights::kTrained);
  inputs["batch/ids"] = row;
  inputs["batch/segment_ids"] = std::vector<double>(kShortLength, 1.0);
  for (int64_t i = 0; i < kShortLength; ++i)
    inputs["batch/segment_pos"].push_back(static_cast<double>(i));
  return evaluate(graph, inputs).at("logits").values;
}

TEST_CASE("in double precision decoding in chunks equals the whole forward pass") {
  const TrialModel model = GENERATE(TrialModel::kGpt2, TrialModel::kLlama, TrialModel::kPax);
  const bool repeated = GENERATE(false, true);
  const SpmdCase trial{.model = model, .repeated = repeated, .attention_bias = true};
  CAPTURE(trial.text());
  const auto task = Template<BaseTask>(spmd_task(trial)).instantiate();
  const ReferenceInputs weights = weights_of(*task);
  std::mt19937 random(3);
  std::vector<std::vector<double>> rows(kBatch), expected;
  for (auto& row : rows) {
    for (int64_t i = 0; i < kShortLength; ++i) row.push_back(random() % 64);
    expected.push_back(whole(*task, weights, row));
  }
  const size_t vocab = expected[0].size() / kShortLength;

  ReferenceInputs cache;
  std::vector<size_t> lengths(kBatch, 0);
  // The number of tokens of each row in a call; shorter rows are padded with arbitrary ids.
  const std::vector<std::vector<size_t>> calls = {{3, 1}, {0, 2}, {4, 4}, {1, 1}, {2, 0}, {0, 2}};
  for (const std::vector<size_t>& counts : calls) {
    const size_t chunk = std::max(counts[0], counts[1]);
    const Graph graph = task->decode_graph(
        {.batch = kBatch, .seq = static_cast<int64_t>(chunk), .cache_length = kShortLength},
        Weights::kTrained);
    ReferenceInputs inputs = weights;
    for (const GraphInput& input : graph.inputs())
      if (input.kind == InputKind::kState)
        inputs[input.name] =
            cache.contains(input.name) ? cache[input.name] : zeros_like(graph, input);
    for (size_t row = 0; row < kBatch; ++row) {
      for (size_t i = 0; i < chunk; ++i)
        inputs["batch/ids"].push_back(i < counts[row] ? rows[row][lengths[row] + i] : 13.0);
      inputs["batch/starts"].push_back(static_cast<double>(lengths[row]));
      inputs["batch/last"].push_back(static_cast<double>(counts[row]) - 1.0);
      inputs["batch/tokens"].push_back(static_cast<double>(lengths[row] + counts[row]));
      lengths[row] += counts[row];
    }
    const auto outputs = evaluate(graph, inputs);
    for (const auto& [name, array] : outputs)
      if (name != "logits") cache[name] = array.values;
    for (size_t row = 0; row < kBatch; ++row) {
      if (counts[row] == 0) continue;
      for (size_t i = 0; i < vocab; ++i)
        REQUIRE(outputs.at("logits").values[row * vocab + i] ==
                Approx(expected[row][(lengths[row] - 1) * vocab + i]).epsilon(1e-12).margin(1e-12));
    }
  }
}

}  // namespace

}  // namespace tessera
