// SPDX-License-Identifier: Apache-2.0
// A mixture of experts resumes on a mesh that splits its experts otherwise: with the losses, the
// state and the tokens of a run on one device that nothing interrupted.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/train/loop_state.h"
#include "tasks/run/train/train_session.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Shape = std::vector<int64_t>;

const TopKRouter::HParams kDropless{.load_balance_weight = 0.1, .bias_rate = 0.01};
const TopKRouter::HParams kSlots{.capacity_factor = 1.0, .load_balance_weight = 0.1};

int64_t devices_of(const Shape& shape) { return shape[0] * shape[1] * shape[2]; }

// The tiny run, in which every feed-forward layer is a mixture of four experts. It saves after
// every second step. `shape` are the sizes of replica, data and mdl; experts are split over data.
ExperimentConfig mixture_on(const Shape& shape, const TopKRouter::HParams& router, int64_t steps) {
  ExperimentConfig config = tiny_config(steps);
  TransformerBlock::HParams block;
  block.ffn_tpl =
      MoeFeedForward::HParams{.num_experts = 4, .router_tpl = router, .num_shared_experts = 1};
  TransformerLm::HParams& lm =
      task_of(config).model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
  lm.num_layers = 2;
  lm.stacked_transformer_tpl = Repeated::HParams{.block_tpl = block};
  task_of(config).train.save_interval_steps = 2;
  config.mesh.ici_mesh_shape = shape;
  config.rules = strategy_rules(devices_of(shape) == 1 ? Strategy::kReplicas : Strategy::kExperts);
  return config;
}

// Runs it up to step `steps`, from where the run in `directory` ended.
void continue_run(const fs::path& directory, const Shape& shape, const TopKRouter::HParams& router,
                  int64_t steps) {
  RunWith options;
  options.devices = devices_of(shape);
  options.allow_config_change = true;
  REQUIRE(run_tiny(mixture_on(shape, router, steps), directory, options) == 0);
}

TEST_CASE("a mixture of experts resumes on other splits of its experts, and on one device") {
  const std::pair<TopKRouter::HParams, std::vector<Shape>> runs[] = {
      {kDropless, {{1, 4, 1}, {1, 1, 1}, {1, 4, 1}, {1, 2, 1}, {1, 4, 1}}},
      {kSlots, {{1, 1, 1}, {1, 2, 2}, {1, 4, 1}, {1, 1, 1}}}};
  for (const auto& [router, path] : runs) {
    const auto steps = 2 * std::ssize(path);
    const TemporaryDirectory directory;
    continue_run(directory / "one", {1, 1, 1}, router, steps);
    for (size_t i = 0; i < path.size(); ++i)
      continue_run(directory / "moved", path[i], router, 2 * (static_cast<int64_t>(i) + 1));
    for (const char* key : {"loss", "grad_norm", "accuracy"}) {
      const std::vector<double> expected = numbers_of(directory / "one", key),
                                got = numbers_of(directory / "moved", key);
      REQUIRE(std::ssize(expected) == steps);
      REQUIRE(got.size() == expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        INFO(key << " of step " << i + 1);
        REQUIRE(got[i] == Approx(expected[i]).epsilon(1e-4));
        // Training twice on one batch would be detected.
        if (i > 0 && key == std::string("grad_norm"))
          REQUIRE(std::abs(expected[i] / expected[i - 1] - 1.0) > 2e-4);
      }
    }
    const CheckpointStore one(directory / "one/checkpoints"),
        moved(directory / "moved/checkpoints");
    REQUIRE(moved.steps() == one.steps());
    for (const int64_t step : one.steps()) {
      const CheckpointInfo got = moved.open(step).info(), expected = one.open(step).info();
      REQUIRE(expected.input_position == step);  // In batches, each a function of its position.
      REQUIRE(got.input_position == expected.input_position);
      const Shape& shape = path[static_cast<size_t>(step / 2 - 1)];
      REQUIRE(loop_state_of(got).mesh == Mesh::standard(shape).text());
    }
  }
}

// All persistent buffers, unsharded.
std::map<std::string, std::vector<std::byte>> state_of(Session& session) {
  std::map<std::string, std::vector<std::byte>> all;
  for (const Buffer& buffer : session.executor().persistent()) {
    std::vector<std::byte> bytes(static_cast<size_t>(buffer.type.bytes()));
    session.executor().read_state(buffer.name, bytes);
    all[buffer.name] = std::move(bytes);
  }
  return all;
}

struct Machine {
  explicit Machine(const Shape& shape)
      : devices(devices_of(shape)),
        session(mixture_on(shape, kDropless, 5),
                {.run_directory = directory.path(), .devices = devices_of(shape)},
                devices.in_order(), alone) {}

  TemporaryDirectory directory;
  TinyDevices devices;
  ProcessGroup alone;
  Session session;
};

TEST_CASE("experts and their balancing biases restore bit for bit on every other split") {
  const std::vector<Shape> shapes = {{1, 4, 1}, {1, 1, 1}, {1, 2, 2}, {2, 2, 1}};
  for (const Shape& from : shapes) {
    Machine saved(from);
    initialise_state(saved.session.executor(), saved.session.task().model().parameters(), 7, 1);
    for (int64_t step = 0; step < 2; ++step)
      saved.session.train_program().run(*saved.session.input().get_next(), step);
    const CheckpointStore store(saved.directory / "checkpoints");
    ProcessGroup alone;
    store.add({.step = 2}, checkpoint_arrays(saved.session.executor()), alone);
    const auto expected = state_of(saved.session);
    REQUIRE(expected.contains("lm.transformer.x_layers[].ffn.router.bias"));
    REQUIRE(expected.contains("learner/m/lm.transformer.x_layers[].ffn.up"));
    for (const Shape& to : shapes) {
      Machine machine(to);
      restore_state(machine.session.executor(), machine.session.task().model().parameters(),
                    store.open(2));
      INFO(saved.session.mesh().text() << " to " << machine.session.mesh().text());
      REQUIRE((state_of(machine.session) == expected));
    }
  }
}

}  // namespace
}  // namespace tessera
