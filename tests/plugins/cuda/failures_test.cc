// SPDX-License-Identifier: Apache-2.0
// Tests failures of runs with --device=cuda: no GPU, too little memory, and GPUs that fail during a
// run. Each is reported in one sentence, and no checkpoint is damaged.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>

#include "tests/plugins/cuda/tiny_run.h"
#include "tests/support/catch.h"
#include "tests/support/metrics_lines.h"

namespace tessera::cuda {
namespace {

namespace filesystem = std::filesystem;

// Returns the standard error of runexp without the report of the virtual GPU.
std::string errors_of(const Outcome& outcome) {
  std::istringstream lines(outcome.errors);
  std::string errors;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("virtual GPU: ")) errors += line + "\n";
  return errors;
}

void require_one_line_error(const Outcome& outcome, int exit_code, const std::string& text) {
  const std::string errors = errors_of(outcome);
  INFO(outcome.errors);
  REQUIRE(outcome.exit_code == exit_code);
  REQUIRE(std::count(errors.begin(), errors.end(), '\n') == 1);
  REQUIRE_THAT(errors, Catch::StartsWith("runexp: ") && Catch::Contains(text));
}

TEST_CASE("training on a GPU that is not there is refused before anything is written") {
  const TinyRun run;
  const auto refused = [&](const std::string& arguments, const std::string& text) {
    require_one_line_error(run.run("run", "--device=cuda " + arguments,
                                   {{"TESSERA_VIRTUAL_GPUS", arguments.empty() ? "0" : "1"}}),
                           2, text);
    REQUIRE_FALSE(filesystem::exists(run.folder() / "run"));
  };
  refused("", "no CUDA-capable device is detected");
  refused("--devices=2", "GPU 1 was asked for, but the driver shows 1");
}

TEST_CASE("a plan that exceeds the GPU's memory is refused before the first step") {
  const TinyRun run;
  const Outcome refused =
      run.run("run", "--device=cuda", {{"TESSERA_VIRTUAL_GPU_MEMORY", "100000"}});
  require_one_line_error(refused, 2, " bytes), of which ");
  REQUIRE_THAT(refused.errors, Catch::Contains("the plan needs ") &&
                                   Catch::Contains("lower the batch or the model"));
  REQUIRE_FALSE(filesystem::exists(run.folder() / "run/metrics.jsonl"));
  // Another process allocates the memory between the query and the allocation.
  require_one_line_error(
      run.run("run", "--device=cuda", {{"TESSERA_VIRTUAL_GPU_FAULT", "out_of_memory:1"}}), 2,
      "the plan needs ");
}

// Returns the steps of a run's complete checkpoints.
std::vector<std::string> saved_steps(const filesystem::path& run) {
  std::vector<std::string> steps;
  for (const auto& entry : filesystem::directory_iterator(run / "checkpoints"))
    if (entry.path().filename().string().starts_with("step_"))
      steps.push_back(entry.path().filename());
  std::sort(steps.begin(), steps.end());
  return steps;
}

// Returns the arguments for six steps with a checkpoint every `interval` steps.
std::string six_steps(int interval) {
  return fmt::format(
      "--device=cuda --set num_train_steps=6 --set task.train.save_interval_steps={}", interval);
}

// Checks that repeating the command continues a failed run, with the losses of a run that did not
// fail.
void require_continues(const TinyRun& run, const std::string& arguments) {
  run.train("failed", arguments);
  run.train("sound", arguments);
  REQUIRE(losses_of(run.folder() / "failed") == losses_of(run.folder() / "sound"));
}

// Checks the error of a run in which a kernel fails in the last step. The last checkpoint is two
// steps older, so that the thread that saves it no longer reads the GPU and does not report the
// failure too. `others` and `more` are patterns.
void require_named_fault(const std::string& graphs, const std::string& others,
                         const std::string& more) {
  const TinyRun run;
  const std::string arguments = six_steps(3);
  const Outcome failed = run.run(
      "failed", arguments,
      {{"TESSERA_VIRTUAL_GPU_FAULT", "launch_failure:700"}, {"TESSERA_CUDA_GRAPH", graphs}});
  require_one_line_error(failed, 1, "CUDA_ERROR_LAUNCH_FAILED");
  static const std::string kSite = "(layers|tasks|core|experiments)/[a-z_/]+\\.(h|cc):[0-9]+";
  REQUIRE_THAT(errors_of(failed),
               Catch::Matches("runexp: " + kSite + ": op '[a-z_]+'" +
                              fmt::format(fmt::runtime(others), kSite) +
                              " failed: GPU 0: [^\\n]*CUDA_ERROR_LAUNCH_FAILED\\)" + more +
                              " \\[in [^\\n]+\\]\\n"));
  REQUIRE(losses_of(run.folder() / "failed").size() == 5);
  for (const std::string& step : saved_steps(run.folder() / "failed"))
    REQUIRE(step <= "step_0000000003");
  require_continues(run, arguments);
}

TEST_CASE("a kernel that faults ends the run with its op, its line and its layer") {
  require_named_fault("off", "", "");
}

TEST_CASE("a kernel that faults in a graph ends the run with the few ops that it may be") {
  require_named_fault("on", " or op '[a-z_]+' \\({}\\), or one of the [0-9]+ launches between,",
                      " in a CUDA graph; the same command with TESSERA_CUDA_GRAPH=off names the "
                      "launch");
}

TEST_CASE("without marks of progress a fault ends the run with the launches of its step") {
  const TinyRun run;
  const std::string arguments = six_steps(3);
  const Outcome failed = run.run("failed", arguments,
                                 {{"TESSERA_VIRTUAL_GPU_FAULT", "launch_failure:700"},
                                  {"TESSERA_CUDA_GRAPH", "off"},
                                  {"TESSERA_CUDA_PROGRESS", "off"}});
  require_one_line_error(failed, 1, "CUDA_ERROR_LAUNCH_FAILED");
  REQUIRE_THAT(errors_of(failed),
               Catch::Matches("runexp: [^\\n]+: op '[a-z_]+' or op '[a-z_]+' \\([^\\n]+\\), or one "
                              "of the [0-9]+ launches between, failed: [^\\n]+\\n"));
  require_continues(run, arguments);
}

TEST_CASE("a GPU that is lost while a checkpoint is saved leaves no damaged checkpoint") {
  const TinyRun run;
  const std::string arguments = six_steps(2);
  const Outcome failed =
      run.run("failed", arguments, {{"TESSERA_VIRTUAL_GPU_FAULT", "lost_while_reading:2"}});
  INFO(failed.errors);
  REQUIRE(failed.exit_code == 1);
  // One line from the thread that saves, and one if a step was running.
  std::istringstream lines(errors_of(failed));
  for (std::string line; std::getline(lines, line);)
    REQUIRE_THAT(line,
                 Catch::Contains("GPU 0: ") && Catch::Contains("(CUDA_ERROR_DEVICE_UNAVAILABLE)"));
  REQUIRE(saved_steps(run.folder() / "failed").empty());
  require_continues(run, arguments);
}

}  // namespace
}  // namespace tessera::cuda
