// SPDX-License-Identifier: Apache-2.0
// Checkpoints across meshes: a checkpoint saved on one mesh restores bit for bit on any other, and
// the loss curve continues with any number of devices and processes.
#include <map>
#include <thread>

#include "core/base/error.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Shape = std::vector<int64_t>;

int64_t devices_of(const Shape& shape) { return shape[0] * shape[1] * shape[2]; }

ExperimentConfig on_mesh(const Shape& shape, Strategy strategy, int64_t steps) {
  ExperimentConfig config = tiny_config(steps);
  config.mesh.ici_mesh_shape = shape;
  config.rules = strategy_rules(strategy);
  task_of(config).learner.ema_decay = 0.9;
  return config;
}

// A session of one process that holds the whole mesh.
struct Machine {
  Machine(const Shape& shape, Strategy strategy)
      : devices(devices_of(shape)),
        session(on_mesh(shape, strategy, 5),
                {.run_directory = directory.path(), .devices = devices_of(shape)},
                devices.in_order(), alone) {}
  const ParameterTable& table() const { return session.task().model().parameters(); }
  // All persistent buffers, unsharded.
  std::map<std::string, std::vector<std::byte>> state() {
    std::map<std::string, std::vector<std::byte>> all;
    for (const Buffer& buffer : session.executor().persistent()) {
      std::vector<std::byte> bytes(static_cast<size_t>(buffer.type.bytes()));
      session.executor().read_state(buffer.name, bytes);
      all[buffer.name] = std::move(bytes);
    }
    return all;
  }
  void take_steps(int64_t count) {
    for (int64_t step = 0; step < count; ++step)
      session.train_program().run(*session.input().get_next(), step);
  }

  TemporaryDirectory directory;
  TinyDevices devices;
  ProcessGroup alone;
  Session session;
};

const std::pair<Shape, Strategy> kMeshes[] = {
    {{1, 1, 1}, Strategy::kReplicas},           {{4, 1, 1}, Strategy::kReplicas},
    {{1, 2, 1}, Strategy::kFullySharded},       {{1, 1, 2}, Strategy::kTensor},
    {{1, 4, 2}, Strategy::kFullyShardedTensor}, {{2, 2, 2}, Strategy::kFullyShardedSequence}};

TEST_CASE("initial weights, averages and state have the same bits on every mesh") {
  Machine one({1, 1, 1}, Strategy::kReplicas);
  initialise_state(one.session.executor(), one.table(), 7, 1);
  const auto expected = one.state();
  REQUIRE(expected.size() > 20);
  for (const auto& [shape, strategy] : kMeshes) {
    Machine machine(shape, strategy);
    initialise_state(machine.session.executor(), machine.table(), 7, 2);
    INFO(machine.session.mesh().text());
    REQUIRE((machine.state() == expected));
  }
}

TEST_CASE("a checkpoint of one mesh restores bit for bit on every other mesh") {
  for (const auto& [from, from_strategy] : kMeshes) {
    Machine saved(from, from_strategy);
    initialise_state(saved.session.executor(), saved.table(), 7, 1);
    saved.take_steps(2);
    const CheckpointStore store(saved.directory / "checkpoints");
    ProcessGroup alone;
    store.add({.step = 2}, checkpoint_arrays(saved.session.executor()), alone);
    const Checkpoint checkpoint = store.open(2);
    const auto expected = saved.state();
    for (const auto& [to, to_strategy] : kMeshes) {
      Machine machine(to, to_strategy);
      restore_state(machine.session.executor(), machine.table(), checkpoint);
      INFO(saved.session.mesh().text() << " to " << machine.session.mesh().text());
      REQUIRE((machine.state() == expected));
    }
  }
}

TEST_CASE("weights loaded from another run are the same on every mesh") {
  Machine source({1, 4, 2}, Strategy::kFullyShardedTensor);
  initialise_state(source.session.executor(), source.table(), 3, 1);
  const CheckpointStore store(source.directory / "checkpoints");
  ProcessGroup alone;
  store.add({.step = 1}, checkpoint_arrays(source.session.executor()), alone);
  const Checkpoint checkpoint = store.open(1);
  const InitFrom p{.ignore_rules = {".*final_ln.*"}};
  std::map<std::string, std::vector<std::byte>> expected;
  for (const auto& [shape, strategy] : kMeshes) {
    Machine machine(shape, strategy);
    initialise_state(machine.session.executor(), machine.table(), 7, 1);
    const auto fresh = machine.state();
    const LoadedWeights loaded =
        load_weights(machine.session.executor(), machine.table(), checkpoint, p);
    REQUIRE(loaded.taken.size() > 5);
    const std::vector<std::string> ignored = {"lm.final_ln.scale", "lm.final_ln.bias"};
    REQUIRE_THAT(loaded.left_out, Catch::Matchers::UnorderedEquals(ignored));
    REQUIRE_THAT(loaded.initial, Catch::Matchers::UnorderedEquals(ignored));
    const auto state = machine.state();
    REQUIRE((state != fresh));
    if (expected.empty()) expected = state;
    REQUIRE((state == expected));
  }
}

// Trains 20 steps on mesh `from`, then resumes on mesh `to` with `processes` processes up to step
// 30. The losses must match a run on one device.
void check_curve(const Shape& from, const Shape& to, int processes) {
  const TemporaryDirectory directory;
  REQUIRE(run_tiny(on_mesh({1, 1, 1}, Strategy::kReplicas, 30), directory / "one") == 0);
  RunWith options;
  options.devices = devices_of(from);
  REQUIRE(run_tiny(on_mesh(from, Strategy::kFullyShardedTensor, 20), directory / "moved",
                   options) == 0);
  options.devices = devices_of(to) / processes;
  options.allow_config_change = true;
  const ExperimentConfig config = on_mesh(to, Strategy::kFullyShardedTensor, 30);
  const auto transports = make_loopback(processes);
  std::vector<int> codes(static_cast<size_t>(processes), -1);
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < codes.size(); ++rank)
      threads.emplace_back([&, rank] {
        ProcessGroup all(transports[rank], std::chrono::seconds(60));
        try {
          codes[rank] = run_tiny(config, directory / "moved", options, all);
        } catch (const Error& error) {
          WARN(error.what());
          all.fail_together(error.what(), 1, std::chrono::seconds(20));
        }
      });
  }
  REQUIRE(codes == std::vector<int>(codes.size(), 0));
  const auto expected = losses_of(directory / "one"), losses = losses_of(directory / "moved");
  REQUIRE(expected.size() == 30);
  REQUIRE(losses.size() == 30);
  for (const auto& [step, loss] : expected) {
    INFO("step " << step);
    REQUIRE(std::stod(losses.at(step)) == Approx(std::stod(loss)).epsilon(1e-4));
  }
  const Checkpoint last = CheckpointStore(directory / "moved/checkpoints").open(30);
  read_arrays(last);
  for (int host = 0; host < processes; ++host)
    REQUIRE(fs::exists(last.directory() / fmt::format("host_{:05}.h5", host)));
}

TEST_CASE("a run on 4 x 2 devices resumes on two devices in two processes") {
  check_curve({1, 4, 2}, {1, 2, 1}, 2);
}
TEST_CASE("a run on 4 x 2 devices resumes on every mesh and number of processes",
          "[full][levels]") {
  for (const Shape& to : {Shape{1, 1, 1}, Shape{1, 2, 1}, Shape{2, 2, 2}})
    for (const int processes : {1, 2, 4})
      if (devices_of(to) % processes == 0) check_curve({1, 4, 2}, to, processes);
  check_curve({1, 1, 1}, {1, 4, 2}, 4);
}

}  // namespace
}  // namespace tessera
