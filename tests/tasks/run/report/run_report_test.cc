// SPDX-License-Identifier: Apache-2.0
// The report that a run writes itself.
#include <filesystem>

#include "inputs/synthetic_input.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/tasks/run/report/page_of_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a run writes its report, and tracing steps changes no bit") {
  const TemporaryDirectory folder;
  RunWith traced;
  traced.mode = TrainOptions{.profile = ProfileWindow{2, 2}};
  REQUIRE(run_tiny(tiny_config(6), folder / "traced", traced) == 0);
  REQUIRE(run_tiny(tiny_config(6), folder / "plain") == 0);
  REQUIRE(losses_of(folder / "traced") == losses_of(folder / "plain"));
  REQUIRE(values_of(folder / "traced", "grad_norm") == values_of(folder / "plain", "grad_norm"));
  REQUIRE_FALSE(fs::exists(folder / "plain/trace.json.gz"));
  const Json run = data_of(read_bytes(folder / "traced/report.html")).at("runs").as_array()[0];
  REQUIRE(run.at("state").as_string() == "done");
  REQUIRE(run.at("profile").at("steps").as_integer() == 2);
  REQUIRE(run.at("profile").at("first_step").as_integer() == 3);
  REQUIRE(run.at("series").at("process_memory").at("m").as_array()[0].as_number() > 1e6);
}

TEST_CASE("a run that fails says so in its report") {
  const TemporaryDirectory folder;
  ExperimentConfig config = tiny_config(9);
  config.input.as<SyntheticInput::HParams>().num_batches = 5;
  error_of([&] { run_tiny(config, folder / "run"); });
  const Json run = data_of(read_bytes(folder / "run/report.html")).at("runs").as_array()[0];
  REQUIRE(run.at("state").as_string() == "failed");
  REQUIRE_THAT(run.at("reason").as_string(), Catch::Contains("ended after 5 batches"));
  REQUIRE(run.at("step").as_integer() == 5);
}

}  // namespace
}  // namespace tessera
