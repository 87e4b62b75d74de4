// SPDX-License-Identifier: Apache-2.0
// Histograms of weights and gradients: their counts, in which steps, and on which meshes.
#include <algorithm>
#include <numeric>
#include <sstream>

#include "core/io/json.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tasks/run/trackers/exec_tracker.h"
#include "tasks/task/histogram.h"
#include "tasks/task/learner/optimizers.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Counts = std::map<std::string, std::vector<double>>;  // By step and name.

double sum_of(const std::vector<double>& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0.0);
}

// What a tracker gets of a run.
Counts counts_of(ExperimentConfig config, int64_t devices = 1) {
  const TemporaryDirectory directory;
  TrainHParams& p = task_of(config).train;
  p.trackers["mine"] = ExecTracker::HParams{.command = "cat > " + (directory / "out").string()};
  p.tracker_wait_seconds = 60;
  RunWith options;
  options.devices = devices;
  REQUIRE(run_tiny(config, directory / "run", options) == 0);
  Counts counts;
  std::istringstream lines(read_bytes(directory / "out"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(R"({"record": "histogram")")) continue;
    const Json json = parse_json(line, "record");
    std::vector<double>& of_bins =
        counts[fmt::format("{} {}", json.at("step").as_integer(), json.at("name").as_string())];
    for (const Json& count : json.at("counts").as_array()) of_bins.push_back(count.as_number());
  }
  return counts;
}

TEST_CASE("elements are counted by sign and magnitude") {
  std::vector<double> counts(kMagnitudeCounts);
  for (size_t i = 0; i < 3; ++i) counts[i] = 4.0;               // Four of at least 2^-19,
  counts[3] = 1.0;                                              // one of at least 2^-18;
  std::fill_n(counts.begin() + kMagnitudes, kMagnitudes, 2.0);  // two of at most -2^9;
  counts.back() = 7.0;                                          // seven near 0.
  const Bins bins = magnitude_bins(counts);
  REQUIRE(bins.counts.size() == kMagnitudeCounts);
  REQUIRE(bins.edges.size() == bins.counts.size() + 1);
  REQUIRE(std::ranges::is_sorted(bins.edges));
  for (size_t i = 0; i < bins.counts.size(); ++i) {
    CAPTURE(bins.edges[i], bins.edges[i + 1]);
    const double expected = i == 0                      ? 2.0
                            : bins.edges[i] == -0x1p-21 ? 7.0
                            : bins.edges[i] == 0x1p-19  ? 3.0
                            : bins.edges[i] == 0x1p-18  ? 1.0
                                                        : 0.0;
    REQUIRE(bins.counts[i] == expected);
  }
}

TEST_CASE("histograms have all elements of each weight and gradient, every few steps") {
  ExperimentConfig config = tiny_config(7);
  REQUIRE(counts_of(config).empty());
  task_of(config).train.histogram_interval_steps = 3;
  const Counts counts = counts_of(config);
  std::map<std::string, double> elements;
  for (const auto& [name, of_bins] : counts) {
    CAPTURE(name);
    REQUIRE((name.starts_with("3 ") || name.starts_with("6 ")));
    elements[name] = sum_of(of_bins);
    REQUIRE(elements[name] > 0.0);
  }
  REQUIRE(elements.at("6 weights/lm.softmax.w") == 24.0 * 16.0);
  REQUIRE(elements.at("3 gradients/lm.softmax.w") == 24.0 * 16.0);
  REQUIRE(counts.size() % 4 == 0);  // Two steps, weights and gradients.
  REQUIRE(counts.at("3 weights/lm.softmax.w") != counts.at("6 weights/lm.softmax.w"));
}

TEST_CASE("histograms of weights are the same on all meshes") {
  ExperimentConfig config = tiny_config(2);
  task_of(config).train.histogram_interval_steps = 1;
  task_of(config).train.num_microbatches = 2;
  auto& lm = task_of(config).model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
  lm.num_layers = 4;
  lm.stacked_transformer_tpl = Repeated::HParams{};
  const Counts one = counts_of(config);
  for (const Strategy strategy :
       {Strategy::kFullyShardedTensor, Strategy::kPipeline, Strategy::kFullyShardedPipeline}) {
    CAPTURE(enum_name(strategy));
    config.mesh = {};
    config.mesh.axis_names = strategy_axes(strategy, std::move(config.mesh.axis_names));
    config.mesh.ici_mesh_shape = {1, 2, 2};
    if (strategy == Strategy::kPipeline) config.mesh.ici_mesh_shape = {2, 1, 1, 1};
    if (strategy == Strategy::kFullyShardedPipeline) config.mesh.ici_mesh_shape = {2, 1, 2, 1};
    config.rules = strategy_rules(strategy);
    const Counts here = counts_of(config, strategy == Strategy::kPipeline ? 2 : 4);
    REQUIRE(one.size() == here.size());
    for (const auto& [name, counts] : one) {
      CAPTURE(name);
      if (name.starts_with("1 weights/")) REQUIRE(here.at(name) == counts);
      REQUIRE(sum_of(here.at(name)) == sum_of(counts));
    }
  }
}

TEST_CASE("histograms do not change the steps") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(5);
  REQUIRE(run_tiny(config, directory / "without") == 0);
  task_of(config).train.histogram_interval_steps = 2;
  REQUIRE(run_tiny(config, directory / "with") == 0);
  REQUIRE(losses_of(directory / "with") == losses_of(directory / "without"));
  REQUIRE(read_bytes(directory / "with/metrics.jsonl").find("gradients/") == std::string::npos);
}

TEST_CASE("a step may renew an optimizer's state and have histograms") {
  ExperimentConfig config = tiny_config(8);
  task_of(config).learner.optimizer_tpl =
      SophiaG::HParams{.learning_rate = 1e-2, .rho = 1e-3, .hessian_interval = 3};
  task_of(config).train.histogram_interval_steps = 4;  // Steps 3 and 7, counted from 0.
  const Counts counts = counts_of(config);
  REQUIRE(counts.contains("4 weights/lm.softmax.w"));
  REQUIRE(counts.contains("8 gradients/lm.softmax.w"));
}

}  // namespace
}  // namespace tessera
