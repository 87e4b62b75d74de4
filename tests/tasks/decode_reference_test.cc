// SPDX-License-Identifier: Apache-2.0
// In double precision, evaluated by the reference interpreter, decoding in chunks and the whole
// forward pass agree, so that rounding hides no error in masks, positions or cache rows.
#include <algorithm>
#include <cmath>
#include <random>
#include <span>

#include "core/backend/reference/interpreter.h"
#include "tests/support/catch.h"
#include "tests/support/decode_trial.h"
#include "tests/support/layer_trial.h"
#include "tests/support/spmd_case.h"

namespace tessera {
namespace {

constexpr int64_t kLength = 10, kBatch = 2;

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
    batch[name] = HostArray{DType::kI32, {"batch", "seq"}, {1, kLength}, {}};
  const Graph graph = task.logits_graph({Mesh(), {}, batch}, Weights::kTrained);
  inputs["batch/ids"] = row;
  inputs["batch/segment_ids"] = std::vector<double>(kLength, 1.0);
  for (int64_t i = 0; i < kLength; ++i)
    inputs["batch/segment_pos"].push_back(static_cast<double>(i));
  return evaluate(graph, inputs).at("logits").values;
}

TEST_CASE("in double precision decoding in chunks equals the whole forward pass") {
  const TrialModel model = GENERATE(TrialModel::kGpt2, TrialModel::kLlama, TrialModel::kPax);
  const bool repeated = GENERATE(false, true);
  const SpmdCase trial{.model = model, .repeated = repeated};
  CAPTURE(trial.text());
  const auto task = Template<BaseTask>(spmd_task(trial)).instantiate();
  const ReferenceInputs weights = weights_of(*task);
  std::mt19937 random(3);
  std::vector<std::vector<double>> rows(kBatch), expected;
  for (auto& row : rows) {
    for (int64_t i = 0; i < kLength; ++i) row.push_back(random() % 64);
    expected.push_back(whole(*task, weights, row));
  }
  const size_t vocab = expected[0].size() / kLength;

  ReferenceInputs cache;
  std::vector<size_t> lengths(kBatch, 0);
  // The number of tokens of each row in a call; shorter rows are padded with arbitrary ids.
  const std::vector<std::vector<size_t>> calls = {{3, 1}, {0, 2}, {4, 4}, {1, 1}, {2, 0}, {0, 2}};
  for (const std::vector<size_t>& counts : calls) {
    const size_t chunk = std::max(counts[0], counts[1]);
    const Graph graph = task->decode_graph(
        {.batch = kBatch, .seq = static_cast<int64_t>(chunk), .cache_length = kLength},
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
      inputs["batch/last"].push_back(counts[row] == 0 ? 0.0 : static_cast<double>(counts[row] - 1));
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
