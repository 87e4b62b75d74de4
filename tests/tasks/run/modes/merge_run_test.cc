// SPDX-License-Identifier: Apache-2.0
// --mode=merge: every weight is the average of those of the checkpoints, on any mesh, and the
// result is a run to evaluate, to decode with and to train.
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/run/modes/modes.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

using Weights = std::map<std::string, std::vector<float>>;

// The f32 arrays of a checkpoint whose names begin with `prefix`.
Weights arrays_of(const fs::path& run, int64_t step, const std::string& prefix = "params/") {
  const Checkpoint checkpoint = CheckpointStore(run / "checkpoints").open(step);
  Weights weights;
  for (const auto& [path, entry] : checkpoint.entries()) {
    if (!path.starts_with(prefix)) continue;
    REQUIRE(entry.dtype == DType::kF32);
    std::vector<float>& values = weights[path.substr(prefix.size())];
    const Region whole = Region::whole(entry.shape);
    values.resize(static_cast<size_t>(whole.elements()));
    checkpoint.read_block(path, whole, std::as_writable_bytes(std::span(values)));
  }
  return weights;
}

ExperimentConfig trained() {
  ExperimentConfig config = tiny_config(6);
  task_of(config).train.save_interval_steps = 2;
  task_of(config).learner.ema_decay = 0.5;
  return config;
}

RunWith merging(const MergeOptions& options) {
  RunWith run;
  run.mode = options;
  return run;
}

void require_average(const fs::path& merged, const fs::path& from,
                     const std::map<int64_t, double>& shares) {
  Weights expected;
  for (const auto& [step, share] : shares)
    for (const auto& [path, values] : arrays_of(from, step)) {
      expected[path].resize(values.size());
      for (size_t i = 0; i < values.size(); ++i)
        expected[path][i] += static_cast<float>(share) * values[i];
    }
  const Weights got = arrays_of(merged, 0);
  REQUIRE(got.size() == expected.size());
  for (const auto& [path, values] : expected) {
    CAPTURE(path);
    REQUIRE(got.at(path).size() == values.size());
    for (size_t i = 0; i < values.size(); ++i)
      REQUIRE(got.at(path)[i] == Approx(values[i]).margin(1e-6));
  }
  // The learner is at its beginning, and its averages are the weights.
  REQUIRE(arrays_of(merged, 0, "learner/ema/") == got);
  for (const auto& [path, values] : arrays_of(merged, 0, "learner/m/"))
    REQUIRE(std::ranges::all_of(values, [](float value) { return value == 0.0f; }));
}

TEST_CASE("a merged run has the average of the checkpoints' weights, on any mesh") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = trained();
  const fs::path from = directory / "run";
  REQUIRE(run_tiny(config, from) == 0);

  REQUIRE(run_tiny(config, directory / "last", merging({.from = from, .last = 2})) == 0);
  require_average(directory / "last", from, {{4, 0.5}, {6, 0.5}});
  const MergeOptions weighted{.from = from, .steps = {6, 2}, .weights = {3.0, 1.0}};
  REQUIRE(run_tiny(config, directory / "weighted", merging(weighted)) == 0);
  require_average(directory / "weighted", from, {{6, 0.75}, {2, 0.25}});

  ExperimentConfig on_mesh = config;
  on_mesh.rules = strategy_rules(Strategy::kFullyShardedTensor);
  on_mesh.mesh.ici_mesh_shape = {1, 2, 2};
  RunWith options = merging(weighted);
  options.devices = 4;
  REQUIRE(run_tiny(on_mesh, directory / "mesh", options) == 0);
  REQUIRE(arrays_of(directory / "mesh", 0) == arrays_of(directory / "weighted", 0));

  RunWith evaluation;
  evaluation.mode = EvalOptions{};
  REQUIRE(run_tiny(config, directory / "weighted", evaluation) == 0);
  REQUIRE(run_tiny(config, directory / "weighted") == 0);  // Trains from there.
  REQUIRE(arrays_of(directory / "weighted", 6) != arrays_of(from, 6));
}

TEST_CASE("what cannot be merged is refused, and nothing is written") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = trained();
  const fs::path from = directory / "run", to = directory / "merged";
  REQUIRE(run_tiny(config, from) == 0);
  const auto refuses = [&](const MergeOptions& options, const std::string& expected) {
    REQUIRE_THAT(error_of([&] { run_tiny(config, to, merging(options)); }),
                 Catch::Contains(expected));
    REQUIRE_FALSE(fs::exists(to / "checkpoints"));
  };
  refuses({.from = from, .steps = {2}}, "expected at least 2");
  refuses({.from = from, .steps = {2, 2}}, "named twice");
  refuses({.from = from, .steps = {2, 3}}, "no checkpoint of step 3");
  refuses({.from = from, .last = 9}, "expected at least 9");
  refuses({.from = directory / "absent", .last = 2}, "has checkpoints of 0 steps");
  refuses({.from = from, .last = 2, .weights = {1.0}}, "--weights has 1 numbers for 2");
  refuses({.from = from, .last = 2, .weights = {1.0, -1.0}}, "expected a positive number");
  const MergeOptions newest{.from = from, .last = 2};
  REQUIRE_THAT(error_of([&] { run_tiny(config, from, merging(newest)); }),
               Catch::Contains("contains a run that has started") &&
                   Catch::Contains("merge into a new --job_log_dir"));
}

}  // namespace
}  // namespace tessera
