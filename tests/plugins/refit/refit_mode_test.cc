// SPDX-License-Identifier: Apache-2.0
// --mode=calibrate --trace and --launch_costs from the command line: a hardware file with
// launch costs from the trace of a run, a plan with it, training by their schedule, and bad input.
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/io/json.h"
#include "tests/plugins/tiny_command.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr const char* kHardware = R"(
title = "a processor"
kind = "cpu"
launch_overhead = 1e-6
[peak_flops]
bf16 = 1e11
f32 = 1e11
[memory]
bytes = 8_000_000_000
bandwidth = 2e10
[link]
bandwidth = 1e10
latency = 1e-6
[network]
bandwidth = 1e10
latency = 1e-6
[efficiency]
products = 0.5
copies = 0.5
links = 0.5
)";

// Two slices, so that collectives are overlapped.
constexpr const char* kTwoSlices =
    " --devices=2 --set ici_mesh_shape=[1,1,1] --set dcn_mesh_shape=[1,2,1]"
    " --set strategy=fsdp";

// A folder with a traced run of two devices.
class TracedRun {
 public:
  Outcome runexp(const std::string& arguments) const {
    return shell(folder().path(), fmt::format("'{}/bin/runexp' {}", TESSERA_BINARY_DIR, arguments),
                 std::chrono::seconds(120));
  }
  std::string succeed(const std::string& arguments) const {
    const Outcome outcome = runexp(arguments);
    INFO(arguments << "\n" << outcome.out << outcome.errors);
    REQUIRE(outcome.exit_code == 0);
    return outcome.out;
  }
  void require_refused(const std::string& arguments, const std::string& text) const {
    const Outcome outcome = runexp(arguments);
    INFO(arguments << "\n" << outcome.out << outcome.errors);
    REQUIRE(outcome.exit_code == 2);
    REQUIRE(std::count(outcome.errors.begin(), outcome.errors.end(), '\n') == 1);
    REQUIRE_THAT(outcome.errors, Catch::StartsWith("runexp: ") && Contains(text));
  }
  fs::path operator/(const std::string& name) const { return folder() / name; }

 private:
  const TemporaryDirectory& folder() const {
    static const TemporaryDirectory folder;
    static bool is_trained = false;
    if (!std::exchange(is_trained, true)) {
      write_small_text(folder.path());
      write_bytes(folder / "cpu.toml", kHardware);
      succeed(tiny_arguments(6) + kTwoSlices + " --profile=2:2");
      succeed("--mode=calibrate --trace=run --hardware=cpu.toml");
    }
    return folder;
  }
};

Json json_in(const fs::path& file) { return parse_json(read_bytes(file), file.string()); }

TEST_CASE("a traced run gives a fitted hardware file and the costs of all its launches") {
  const TracedRun run;
  const std::string text = run.succeed(
      "--mode=calibrate --trace=run/trace.json.gz --hardware=cpu.toml "
      "--job_log_dir=fitted");
  REQUIRE_THAT(text, Contains("2 traced steps of quickstart.CharLm on replica=1 data=2 mdl=1") &&
                         Contains("efficiency.products") && Contains("launch_overhead") &&
                         Contains("network.latency") && Contains("with launch costs, too") &&
                         Contains("wrote fitted/hardware.toml"));
  REQUIRE_THAT(read_bytes(run / "fitted/hardware.toml"),
               Contains("# Fitted to run/trace.json.gz by runexp") && Contains("\n[launches]\n") &&
                   Contains("\n\"all_gather over data") && Contains("\n\"einsum ("));
  // The files of the run itself, from which the rest of the tests starts.
  REQUIRE(fs::exists(run / "run/hardware.toml"));
  // Repeats it.
  run.succeed(
      "--mode=calibrate --config=run --trace=run --hardware=run/hardware.toml "
      "--job_log_dir=again");
}

TEST_CASE("a file of measured launches, as gpu_check's campaign writes, fits a hardware file") {
  const TracedRun run;
  const std::string mode = "--mode=calibrate --hardware=cpu.toml --trace=run/hardware.toml ";
  const std::string text =
      run.succeed(mode + "--config=run --devices=2 --job_log_dir=from_launches");
  REQUIRE_THAT(text, Contains("measured launches of quickstart.CharLm on replica=1 data=2 mdl=1") &&
                         Contains("with launch costs, too") && Contains("+0.0 %"));
  const std::string fitted = read_bytes(run / "from_launches/hardware.toml");
  const std::string traced = read_bytes(run / "run/hardware.toml");
  REQUIRE_THAT(fitted, Contains("# Fitted to run/hardware.toml by runexp"));
  REQUIRE(fitted.substr(fitted.find("[launches]")) == traced.substr(traced.find("[launches]")));
  run.require_refused(mode + "--job_log_dir=none", "--exp");
  run.require_refused(
      "--mode=calibrate --config=run --hardware=cpu.toml --trace=cpu.toml "
      "--job_log_dir=none",
      "has no launch of this program");
}

TEST_CASE("training by measured costs has the same bits, and is planned as it runs") {
  const TracedRun run;
  const std::string plan = run.succeed(
      "--config=run --mode=plan --devices=2 --launch_costs=run "
      "--job_log_dir=planned");
  std::string arguments = tiny_arguments(6);
  arguments.replace(arguments.find("--job_log_dir=run"), 17, "--job_log_dir=timed");
  run.succeed(arguments + kTwoSlices + " --launch_costs=run");
  for (const char* key : {"loss", "grad_norm"}) {
    const auto expected = values_of(run / "run", key);
    REQUIRE(expected.size() == 6);
    REQUIRE(values_of(run / "timed", key) == expected);
  }
  const auto peak = [&](const char* folder) {
    return json_in(run / folder / "plan.json").at("arena_bytes").as_integer();
  };
  REQUIRE(peak("timed") == peak("planned"));
}

TEST_CASE("a trace of another program is refused with the first launch that differs") {
  const TracedRun run;
  const std::string with = "--mode=calibrate --hardware=cpu.toml --trace=run --config=run ";
  run.require_refused(with + "--set task.model.lm_tpl.hidden_dims=32",
                      "run/trace.json.gz is the trace of another program: in step 3 of device 0");
  run.require_refused(with + "--set mesh.dcn_mesh_shape=[1,1,1]", "another program");
  run.require_refused(with + "--set input.global_batch_size=4", "another program");
  run.require_refused(with + "--set 'task.train.phases=[{batch_size=4}]'", "a step of one size");
}

TEST_CASE("bad input of the refit and of launch costs is refused before anything is written") {
  const TracedRun run;
  const std::string mode = "--mode=calibrate --job_log_dir=none ";
  run.require_refused(mode + "--trace=run", "starts from a hardware file");
  run.require_refused(mode + "--trace=none --hardware=cpu.toml",
                      "--trace=none: none is not a file");
  run.require_refused(mode + "--trace=run --hardware=cpu.toml --restart",
                      "--restart cannot be used with --mode=calibrate --trace");
  run.require_refused("--exp=quickstart.CharLm --trace=run", "--trace needs --mode=calibrate");
  write_bytes(run / "bad/trace.json.gz", "not gzip");
  fs::copy_file(run / "run/hparams.toml", run / "bad/hparams.toml",
                fs::copy_options::overwrite_existing);
  run.require_refused(mode + "--trace=bad --hardware=cpu.toml", "bad/trace.json.gz");
  run.require_refused("--config=run --mode=plan --launch_costs=bad", "bad/hardware.toml is not");
  write_bytes(run / "bad/hardware.toml", kHardware);
  run.require_refused("--config=run --mode=plan --launch_costs=bad", "has no [launches]");
  run.require_refused("--config=run --mode=eval --launch_costs=run",
                      "--launch_costs needs --mode=train or plan");
  REQUIRE_FALSE(fs::exists(run / "none"));
}

}  // namespace
}  // namespace tessera
