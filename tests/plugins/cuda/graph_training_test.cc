// SPDX-License-Identifier: Apache-2.0
// Tests training runs on the virtual GPU with and without CUDA graphs, and the switches for both.
#include <algorithm>
#include <filesystem>
#include <string>

#include "plugins/cuda/device/graph.h"
#include "plugins/cuda/device/progress.h"
#include "tests/plugins/cuda/tiny_run.h"
#include "tests/support/catch.h"
#include "tests/support/metrics_lines.h"

namespace tessera::cuda {
namespace {

using Catch::Contains;

TEST_CASE("a training run has the same bits with and without graphs, and after a resume") {
  const TinyRun run;
  const std::string gpu =
      "--device=cuda --set num_train_steps=8 --set task.train.save_interval_steps=4 ";
  run.train("with", gpu);
  run.train("without", gpu, {{kGraphVariable, "off"}});
  for (const char* value : {"loss", "grad_norm"})
    REQUIRE(values_of(run.folder() / "with", value) == values_of(run.folder() / "without", value));
  REQUIRE(values_of(run.folder() / "with", "loss").size() == 8);
  std::filesystem::remove_all(run.folder() / "with/checkpoints/step_0000000008");
  const Outcome resumed = run.run("with", gpu, {{kGraphVariable, "off"}});
  INFO(resumed.errors);
  REQUIRE_THAT(resumed.out, Contains("restored step 4"));
  REQUIRE(losses_of(run.folder() / "with") == losses_of(run.folder() / "without"));
}

TEST_CASE("steps without a graph are noted once, and other values of the switch are refused") {
  const TinyRun run;
  const std::string two = "--device=cuda --devices=2 --set num_train_steps=4 ";
  const auto notes = [&](const std::string& name, const std::string& graphs) {
    const Outcome outcome = run.run(name, two, {{kGraphVariable, graphs}});
    INFO(outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    return outcome.errors;
  };
  const std::string noted = notes("on", "on");
  REQUIRE_THAT(noted,
               Catch::StartsWith("note: steps run kernel by kernel, not as a CUDA graph: ") &&
                   Contains("synchronize on the host in each collective [in "));
  REQUIRE(std::count(noted.begin(), noted.end(), '\n') == 1);
  REQUIRE(notes("off", "off") == "");
  REQUIRE(losses_of(run.folder() / "on") == losses_of(run.folder() / "off"));
  const Outcome refused = run.run("refused", two, {{kGraphVariable, "offf"}});
  REQUIRE(refused.exit_code == 2);
  REQUIRE(refused.errors ==
          "runexp: TESSERA_CUDA_GRAPH: unknown value 'offf'; did you mean 'off'?; expected on or "
          "off\n");
  const Outcome marks = run.run("refused", two, {{kProgressVariable, "none"}});
  REQUIRE(marks.exit_code == 2);
  REQUIRE(marks.errors ==
          "runexp: TESSERA_CUDA_PROGRESS: unknown value 'none'; did you mean 'on'?; expected on or "
          "off\n");
  REQUIRE_FALSE(std::filesystem::exists(run.folder() / "refused"));
}

}  // namespace
}  // namespace tessera::cuda
