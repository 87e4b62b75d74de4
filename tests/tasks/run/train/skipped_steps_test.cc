// SPDX-License-Identifier: Apache-2.0
// Runs that skip or report steps by the mean of those before: resumed, on meshes, and the batches
// that they keep.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "core/io/hdf5.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "inputs/checked_input.h"
#include "tasks/run/train/run_health.h"
#include "tasks/task/learner/schedules.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// A step half a deviation above the mean is skipped: about a third of them.
ExperimentConfig picky_config() {
  ExperimentConfig config = tiny_config(16);
  auto& task = task_of(config);
  task.learner.skip_step_deviations = 0.5;
  task.learner.skip_step_window = 4;
  task.train.save_interval_steps = 4;
  config.eval_inputs.clear();
  return config;
}

Names kept_files(const fs::path& directory) {
  Names names;
  if (!fs::exists(directory / "skipped")) return names;
  for (const auto& entry : fs::directory_iterator(directory / "skipped"))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

TEST_CASE("a run that skips steps by the mean of those before resumes bit for bit") {
  const TemporaryDirectory whole, broken;
  const ExperimentConfig config = picky_config();
  REQUIRE(run_tiny(config, whole.path()) == 0);
  REQUIRE(run_tiny(config, broken.path()) == 0);
  for (const char* step : {"checkpoints/step_0000000016", "checkpoints/step_0000000012"})
    fs::remove_all(broken / step);  // A kill leaves this state.
  REQUIRE(run_tiny(config, broken.path()) == 0);
  REQUIRE(std::stoi(values_of(whole.path(), "skipped").back()) > 1);
  REQUIRE(std::stoi(values_of(whole.path(), "skipped").back()) < 8);
  for (const char* name : {"loss", "skipped", "loss_deviations", "grad_norm_deviations"})
    REQUIRE(values_of(broken.path(), name) == values_of(whole.path(), name));
  const Checkpoint a = CheckpointStore(whole / "checkpoints").open(16);
  const Checkpoint b = CheckpointStore(broken / "checkpoints").open(16);
  REQUIRE(a.entries().contains("learner/window_losses"));
  for (const auto& [path, entry] : a.entries())
    REQUIRE(array_bytes(a, path) == array_bytes(b, path));
  REQUIRE(kept_files(broken.path()) == kept_files(whole.path()));
}

TEST_CASE("the same steps are skipped on a mesh, and its checkpoint is read on one device") {
  const TemporaryDirectory one, mesh;
  REQUIRE(run_tiny(picky_config(), one.path()) == 0);
  ExperimentConfig config = picky_config();
  config.mesh.ici_mesh_shape = {1, 2, 2};
  config.rules = strategy_rules(Strategy::kFullyShardedTensor);
  RunWith options;
  options.devices = 4;
  REQUIRE(run_tiny(config, mesh.path(), options) == 0);
  REQUIRE(values_of(mesh.path(), "skipped") == values_of(one.path(), "skipped"));
  fs::remove_all(mesh / "checkpoints/step_0000000016");
  options.devices = 1;
  options.allow_config_change = true;
  REQUIRE(run_tiny(picky_config(), mesh.path(), options) == 0);
  REQUIRE(values_of(mesh.path(), "skipped") == values_of(one.path(), "skipped"));
}

TEST_CASE("steps far above the mean are reported, and are otherwise as without the report") {
  ExperimentConfig config = picky_config();
  const TemporaryDirectory plain, reporting;
  task_of(config).learner.skip_step_deviations = 0.0;
  REQUIRE(run_tiny(config, plain.path()) == 0);
  task_of(config).learner.spike_deviations = 0.5;
  REQUIRE(run_tiny(config, reporting.path()) == 0);
  REQUIRE(losses_of(reporting.path()) == losses_of(plain.path()));
  REQUIRE(values_of(plain.path(), "loss_deviations").empty());
  const std::vector<double> loss = numbers_of(reporting.path(), "loss_deviations");
  const std::vector<double> norm = numbers_of(reporting.path(), "grad_norm_deviations");
  const auto spikes = std::ranges::count(values_of(reporting.path(), "event"), "\"spike\"");
  REQUIRE(spikes > 0);
  REQUIRE(loss.size() == 16);
  const auto is_above = [&](size_t i) { return std::max(loss[i], norm[i]) > 0.5; };
  int64_t above = 0;
  for (size_t i = 0; i < loss.size(); ++i) above += is_above(i) ? 1 : 0;
  REQUIRE(above == spikes);
  REQUIRE_THAT(values_of(reporting.path(), "reason").front(),
               Catch::Contains("standard deviations above the mean of the steps before"));
  REQUIRE(kept_files(reporting.path()).empty());
}

// Steps from the fifth on have a gradient that is not finite.
TEST_CASE("a run keeps the batches of the steps that it skips") {
  ExperimentConfig config = tiny_config(8);
  task_of(config).learner.optimizer_tpl = AdamW::HParams{
      .schedule_tpl = PiecewiseConstant::HParams{.boundaries = {3}, .values = {1.0, 1e35}}};
  config.eval_inputs.clear();
  const TemporaryDirectory directory;
  REQUIRE(run_tiny(config, directory.path()) == 0);
  REQUIRE(kept_files(directory.path()) == Names{"step_000005.host0.h5", "step_000006.host0.h5",
                                                "step_000007.host0.h5", "step_000008.host0.h5"});
  const std::unique_ptr<BaseInput> input = make_input(config.input);
  input->attach({});
  for (int64_t step = 1; step <= 6; ++step) {
    const std::optional<Batch> batch = input->get_next();
    if (step < 6) continue;
    const Hdf5File file = Hdf5File::open(directory / "skipped/step_000006.host0.h5");
    REQUIRE(file.dataset_paths().size() == batch->size());
    for (const auto& [name, array] : *batch) {
      const Hdf5Dataset stored = file.dataset(name);
      REQUIRE(stored.shape() == array.shape);
      std::vector<std::byte> bytes(array.bytes.size());
      stored.read(bytes);
      REQUIRE(bytes == array.bytes);
    }
  }
}

Batch batch_of(const std::vector<int32_t>& ids) {
  HostArray array{DType::kI32, {"batch", "seq"}, {2, std::ssize(ids) / 2}, {}};
  array.bytes.resize(ids.size() * sizeof(int32_t));
  std::ranges::copy(ids, array.data<int32_t>());
  return {{"ids", array}};
}

TEST_CASE("only the first batches of a start are kept, and failing to write is no error") {
  ExperimentConfig config = tiny_config(30);
  task_of(config).learner.optimizer_tpl = AdamW::HParams{
      .schedule_tpl = PiecewiseConstant::HParams{.boundaries = {14}, .values = {1.0, 1e35}}};
  task_of(config).learner.max_skipped_in_a_row = 0;
  config.eval_inputs.clear();
  const TemporaryDirectory directory, other;
  REQUIRE(run_tiny(config, directory.path()) == 0);
  REQUIRE(values_of(directory.path(), "skipped").back() == "15");
  REQUIRE(kept_files(directory.path()).size() == kMostKeptBatches);

  const Batch batch = batch_of({1, 2, 3, 4});
  REQUIRE(keep_batch(batch, 1234567, 3, other / "skipped") ==
          "the batch of step 1234567 is in skipped/step_1234567.host3.h5");
  write_file_atomically(other / "file", "");
  REQUIRE_THAT(keep_batch(batch, 1, 0, other / "file"),
               Catch::StartsWith("warning: the batch of step 1 could not be kept: "));
}

}  // namespace
}  // namespace tessera
