// SPDX-License-Identifier: Apache-2.0
// Makes every driver function that a run calls fail at some call (failing_driver.cc). The run ends
// with a one-sentence error, or goes on, and repeating the command gives the losses of a run that
// did not fail.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "plugins/cuda/device/driver.h"
#include "tests/plugins/cuda/tiny_run.h"
#include "tests/support/catch.h"
#include "tests/support/metrics_lines.h"

namespace tessera::cuda {
namespace {

namespace filesystem = std::filesystem;

const std::string kDriver = TESSERA_BINARY_DIR "/lib/virtual_gpu/failing_driver.so";
const std::string kSteps =
    "--device=cuda --set num_layers=1 --set num_train_steps=2 --set "
    "task.train.save_interval_steps=1";

// Returns the errors without reports of the virtual GPU and without notes.
std::string errors_of(const Outcome& outcome) {
  std::istringstream lines(outcome.errors);
  std::string errors;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("virtual GPU: ") && !line.starts_with("note: ")) errors += line + "\n";
  return errors;
}

// A run that does not fail: its losses, and how often it called each function.
struct Sound {
  explicit Sound(const TinyRun& run) {
    const filesystem::path counts = run.folder() / "calls.txt";
    run.train("sound", kSteps,
              {{"TESSERA_CUDA_DRIVER", kDriver}, {"TESSERA_COUNTED_CALLS", counts.string()}});
    losses = losses_of(run.folder() / "sound");
    std::ifstream file(counts);
    std::string name;
    for (int64_t number; file >> name >> number;) calls[name] = number;
  }
  std::map<std::string, std::string> losses;  // By step.
  std::map<std::string, int64_t> calls;
};

// Runs in the directory "failed" and continues from earlier runs there. Returns whether the run
// failed.
bool check_failing_call(const TinyRun& run, const Sound& sound, const std::string& function,
                        int64_t call) {
  const std::string failing = fmt::format("{}:{}", function, call);
  const Outcome outcome = run.run(
      "failed", kSteps, {{"TESSERA_CUDA_DRIVER", kDriver}, {"TESSERA_FAILING_CALL", failing}});
  const std::string errors = errors_of(outcome);
  INFO(failing << "\n" << outcome.out << outcome.errors);
  if (outcome.exit_code == 0) {
    REQUIRE(losses_of(run.folder() / "failed") == sound.losses);
    filesystem::remove_all(run.folder() / "failed");
    return false;
  }
  REQUIRE((outcome.exit_code == 1 || outcome.exit_code == 2));
  REQUIRE(std::ranges::count(errors, '\n') == 1);
  REQUIRE_THAT(errors, Catch::StartsWith("runexp: "));
  return true;
}

// Repeats the command without a failure and requires the losses of a run that did not fail.
void check_no_damage(const TinyRun& run, const Sound& sound) {
  run.train("failed", kSteps);
  REQUIRE(losses_of(run.folder() / "failed") == sound.losses);
  filesystem::remove_all(run.folder() / "failed");
}

TEST_CASE("the first call of each function of the driver may fail") {
  const TinyRun run;
  const Sound sound(run);
  // Functions that are called only with several GPUs or processes, after a fault, or for a trace.
  const std::set<std::string> kNotCalled = {
      "cuDeviceCanAccessPeer",    "cuCtxEnablePeerAccess",      "cuGetErrorName",
      "cuGetErrorString",         "cuEventElapsedTime",         "cuDeviceGetPCIBusId",
      "cuModuleGetFunctionCount", "cuModuleEnumerateFunctions", "cuFuncGetName",
      "cuStreamWaitEvent"};
  Driver driver;
  int failed = 0;
  driver.for_each([&](const auto&, const std::string& name) {
    CAPTURE(name);
    REQUIRE(sound.calls.contains(name) != kNotCalled.contains(name));
    if (sound.calls.contains(name) && check_failing_call(run, sound, name, 1)) ++failed;
  });
  REQUIRE(failed > 25);
  check_no_damage(run, sound);
}

TEST_CASE("any call of a function of the driver may fail", "[full]") {
  const TinyRun run;
  const Sound sound(run);
  for (const auto& [function, calls] : sound.calls) {
    std::set<int64_t> chosen = {2, calls - 1, calls};
    for (int64_t call = 3; call < calls; call += 1 + call / 2) chosen.insert(call);
    for (const int64_t call : chosen)
      if (call > 1 && call <= calls && check_failing_call(run, sound, function, call))
        check_no_damage(run, sound);
  }
}

}  // namespace
}  // namespace tessera::cuda
