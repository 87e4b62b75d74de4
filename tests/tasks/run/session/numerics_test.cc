// SPDX-License-Identifier: Apache-2.0
// Runs in double precision (task.train.numerics): initial and restored weights are exactly those of
// a standard run, results agree within the rounding of f32, other devices are refused.
#include "core/compile/numerics.h"

#include <cmath>
#include <map>

#include "core/devices/reference/array.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "core/runtime/executor/device_kinds.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/train/train_session.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_arrays.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

ExperimentConfig with_numerics(Numerics numerics) {
  ExperimentConfig config = tiny_config(5);
  config.mesh.ici_mesh_shape = {1, 2, 1};
  task_of(config).train.numerics = numerics;
  return config;
}

struct Machine {
  explicit Machine(Numerics numerics)
      : devices(2),
        session(with_numerics(numerics), {.run_directory = directory.path(), .devices = 2},
                devices.in_order(), alone) {
    initialise_state(session.executor(), session.task().model().parameters(), 7, 1);
  }
  std::map<std::string, std::vector<double>> state() {
    std::map<std::string, std::vector<double>> all;
    for (const Buffer& buffer : session.executor().persistent()) {
      std::vector<std::byte> bytes(static_cast<size_t>(buffer.type.bytes()));
      session.executor().read_state(buffer.name, bytes);
      all[buffer.name] = decode_values(buffer.type, bytes.data());
    }
    return all;
  }
  double step() { return session.train_program().run(*session.input().get_next(), 0).loss; }

  TemporaryDirectory directory;
  TinyDevices devices;
  ProcessGroup alone;
  Session session;
};

TEST_CASE("a run in f64 begins with the weights of a standard run and has its loss") {
  Machine standard(Numerics::kStandard), exact(Numerics::kF64);
  REQUIRE((exact.state() == standard.state()));
  const double loss = standard.step(), wide = exact.step();
  REQUIRE(loss == static_cast<double>(static_cast<float>(loss)));
  REQUIRE(wide != static_cast<double>(static_cast<float>(wide)));  // It was not rounded to f32.
  REQUIRE(std::abs(loss - wide) < 1e-5 * wide);
}

TEST_CASE("a checkpoint of a standard run is restored in f64, and not the reverse") {
  Machine standard(Numerics::kStandard), exact(Numerics::kF64);
  standard.step();
  const CheckpointStore store(standard.directory / "checkpoints");
  store.add({.step = 1}, checkpoint_arrays(standard.session.executor()), standard.alone);
  const ParameterTable& table = standard.session.task().model().parameters();
  const int64_t converted = restore_state(exact.session.executor(), table, store.open(1));
  REQUIRE(converted > 20);
  REQUIRE((exact.state() == standard.state()));

  const CheckpointStore wide(exact.directory / "checkpoints");
  wide.add({.step = 1}, checkpoint_arrays(exact.session.executor()), exact.alone);
  REQUIRE_THROWS_WITH(restore_state(standard.session.executor(), table, wide.open(1)),
                      Catch::Contains("f64") && Catch::Contains("f32"));
}

TEST_CASE("a device with standard numerics only is refused") {
  const DeviceKind kind = find_device_kind(test_device_kind());
  DeviceKind narrow = kind;
  narrow.has_all_numerics = false;
  register_device_kind(test_device_kind(), narrow);
  const std::string f64 = error_of([] { Machine{Numerics::kF64}; });
  const std::string invariant = error_of([] { Machine{Numerics::kMeshInvariant}; });
  register_device_kind(test_device_kind(), kind);
  REQUIRE_THAT(f64, Catch::Contains("task.train.numerics: f64 is for CPUs"));
  REQUIRE_THAT(invariant, Catch::Contains("task.train.numerics: mesh_invariant is for CPUs"));
}

}  // namespace
}  // namespace tessera
