// SPDX-License-Identifier: Apache-2.0
// An optimizer that renews a part of its state every few steps, in a run: when it does, on which
// meshes, and after a resume.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/io/json.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "layers/models/classification_model.h"
#include "tasks/run/modes/modes.h"
#include "tasks/task/learner/optimizers.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr int64_t kSteps = 7, kInterval = 3;

// An optimizer, and the beginnings of the names of state that it renews, and of other state.
struct Renewing {
  Template<BaseOptimizer> optimizer_tpl;
  std::string renewed, other;
  double margin = 1e-8;  // For what is renewed, between meshes.
};

Template<BaseOptimizer> sophia(int64_t interval) {
  return SophiaG::HParams{.learning_rate = 1e-2, .rho = 1e-3, .hessian_interval = interval};
}

const std::vector<Renewing> kRenewing = {
    {sophia(kInterval), "learner/h/", "learner/m/"},
    {Shampoo::HParams{.learning_rate = 1e-2, .root_interval = kInterval, .damping = 1e-2},
     "learner/left_root/", "learner/left/", 1e-4}};  // Roots have elements of some tens.

ExperimentConfig renewing(const Template<BaseOptimizer>& optimizer_tpl = sophia(kInterval)) {
  ExperimentConfig config = tiny_config(kSteps);
  task_of(config).train.save_interval_steps = 1;
  task_of(config).train.save_max_to_keep = 0;
  task_of(config).learner.optimizer_tpl = optimizer_tpl;
  return config;
}

// The weights and the state of the optimizer after `step` steps.
std::map<std::string, std::vector<std::byte>> arrays_of(const fs::path& run, int64_t step) {
  const Checkpoint checkpoint = CheckpointStore(run / "checkpoints").open(step);
  std::map<std::string, std::vector<std::byte>> arrays;
  for (const auto& [path, entry] : checkpoint.entries())
    arrays[path] = array_bytes(checkpoint, path);
  return arrays;
}

void require_renewals(const Renewing& row) {
  const TemporaryDirectory directory;
  REQUIRE(run_tiny(renewing(row.optimizer_tpl), directory / "run") == 0);
  auto before = arrays_of(directory / "run", 1);
  const auto is_zero = [](const std::vector<std::byte>& bytes) {
    return std::ranges::all_of(bytes, [](std::byte each) { return each == std::byte{0}; });
  };
  for (int64_t step = 1; step <= kSteps; ++step) {
    const auto after = arrays_of(directory / "run", step);
    for (const auto& [path, bytes] : after) {
      INFO(path << " after " << step << " steps");
      if (path.starts_with(row.renewed)) {
        REQUIRE(!is_zero(bytes));
        if (step > 1) REQUIRE((bytes != before.at(path)) == ((step - 1) % kInterval == 0));
      } else if (path.starts_with(row.other) && step > 1) {
        REQUIRE(bytes != before.at(path));
      }
    }
    before = after;
  }
}

TEST_CASE("state is renewed in the first step and in every few steps after it") {
  for (const Renewing& row : kRenewing) require_renewals(row);
}

void require_resume(const Renewing& row) {
  const TemporaryDirectory directory;
  const fs::path whole = directory / "whole", parts = directory / "parts";
  REQUIRE(run_tiny(renewing(row.optimizer_tpl), whole) == 0);
  ExperimentConfig config = renewing(row.optimizer_tpl);
  RunWith options;
  options.allow_config_change = true;
  for (const int64_t steps : {3, 4, 5, 7}) {  // Resumed at a renewal, after it and before one.
    task_of(config).train.num_train_steps = steps;
    REQUIRE(run_tiny(config, parts, options) == 0);
  }
  REQUIRE(arrays_of(parts, kSteps) == arrays_of(whole, kSteps));

  config = renewing(row.optimizer_tpl);
  config.mesh.ici_mesh_shape = {1, 2, 2};
  config.rules = strategy_rules(Strategy::kFullyShardedTensor);
  RunWith four;
  four.devices = 4;
  REQUIRE(run_tiny(config, directory / "mesh", four) == 0);
  const auto one = arrays_of(whole, 2), mesh = arrays_of(directory / "mesh", 2);
  for (const auto& [path, bytes] : one) {
    if (!path.starts_with(row.renewed)) continue;
    for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
      float a = 0.0f, b = 0.0f;
      std::memcpy(&a, &bytes[i], sizeof a);
      std::memcpy(&b, &mesh.at(path)[i], sizeof b);
      INFO(path << "[" << i / sizeof(float) << "]");
      REQUIRE(b == Approx(a).epsilon(1e-3).margin(row.margin));
    }
  }
}

TEST_CASE("a run with renewed state resumes bit for bit, and is the same on a mesh") {
  for (const Renewing& row : kRenewing) require_resume(row);
}

TEST_CASE("an interval of one step renews in all of them, by one program") {
  const TemporaryDirectory directory;
  REQUIRE(run_tiny(renewing(sophia(1)), directory / "run") == 0);
  auto before = arrays_of(directory / "run", 1);
  const auto after = arrays_of(directory / "run", 2);
  for (const auto& [path, bytes] : after)
    if (path.starts_with("learner/h/")) REQUIRE(bytes != before.at(path));
}

TEST_CASE("a plan has the steps that renew state") {
  for (const Renewing& row : kRenewing) {
    const TemporaryDirectory directory;
    RunWith options;
    options.mode = PlanOptions{.output = directory / "plan.json"};
    REQUIRE(run_tiny(renewing(row.optimizer_tpl), directory / "run", options) == 0);
    const Json plan = parse_json(read_bytes(directory / "plan.json"), "plan.json");
    const Json& renewal = plan.at("renewal");
    REQUIRE(renewal.at("interval").as_integer() == kInterval);
    REQUIRE(renewal.at("peak_bytes").as_integer() > 0);
  }
}

TEST_CASE("drawn labels and intervals that a learner or a model cannot have are refused") {
  const TemporaryDirectory directory;
  ExperimentConfig config = renewing();
  task_of(config).learner.optimizer_rules = {
      {"norms", {".*norm.*"}, SophiaG::HParams{.hessian_interval = 5}}};
  REQUIRE_THAT(error_of([&] { run_tiny(config, directory / "run"); }),
               Contains("one optimizer renews its state every 3 steps and another every 5"));
  config = renewing();
  task_of(config).model = ClassificationModel::HParams{
      .network_tpl = Mlp::HParams{.input_dims = 3, .hidden_dims = {4}},
      .softmax_tpl = FullSoftmax::HParams{.vocab_size = 2, .model_dims = 4}};
  REQUIRE_THAT(error_of([&] { run_tiny(config, directory / "run"); }),
               Contains("which ClassificationModel does not give"));
}

}  // namespace
}  // namespace tessera
