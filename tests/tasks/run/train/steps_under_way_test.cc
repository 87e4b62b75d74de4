// SPDX-License-Identifier: Apache-2.0
// Training on a device that works beside the host, which starts a step before it reads the metrics
// of the last.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "inputs/synthetic_input.h"
#include "tasks/task/learner/schedules.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Lines = std::vector<std::string>;

// The lines of metrics.jsonl without times. When a checkpoint is complete depends on time, too, and
// a step cannot be repeated to find where a NaN begins if another one is under way.
Lines log_of(const std::filesystem::path& directory) {
  static const std::regex kTimes(
      R"re("(time|seconds|tokens_per_sec|step_time|mfu|input_wait|process_memory)": [^,}]*)re");
  std::ifstream file(directory / "metrics.jsonl");
  Lines lines;
  for (std::string line; std::getline(file, line);)
    if (line.find("\"save\"") == std::string::npos &&
        line.find("\"nonfinite\"") == std::string::npos)
      lines.push_back(std::regex_replace(line, kTimes, "$1"));
  return lines;
}

Lines log_on(const char* device, const ExperimentConfig& config) {
  const TemporaryDirectory directory;
  const std::string usual = test_device_kind();
  setenv("TESSERA_TEST_DEVICE", device, 1);
  error_of([&] { run_tiny(config, directory / "run"); });  // The log ends with the error.
  setenv("TESSERA_TEST_DEVICE", usual.c_str(), 1);
  return log_of(directory / "run");
}

void require_same_log(const ExperimentConfig& config, const char* end) {
  const Lines expected = log_on("cpu", config);
  REQUIRE(expected.size() > 5);
  REQUIRE_THAT(expected.back(), Catch::Contains(end));
  REQUIRE(log_on("guarded", config) == expected);
}

TEST_CASE("a device that works beside the host gives the same log") {
  ExperimentConfig config = tiny_config(9);
  task_of(config).train.save_interval_steps = 3;
  task_of(config).train.eval_interval_steps = 4;
  require_same_log(config, "done");
}

TEST_CASE("a device that works beside the host gives the same log over phases") {
  ExperimentConfig config = tiny_config(6);
  task_of(config).train.phases = {
      {.batch_size = 4}, {.start_step = 2}, {.start_step = 5, .seq_len = 8}};
  require_same_log(config, "done");
}

TEST_CASE("the steps before the end of the input, or before a failure, are in the log") {
  ExperimentConfig ended = tiny_config(9);
  ended.input.as<SyntheticInput::HParams>().num_batches = 5;
  require_same_log(ended, "the training input ended after 5 batches");
  ExperimentConfig diverging = tiny_config(20);
  task_of(diverging).learner.optimizer_tpl = AdamW::HParams{
      .schedule_tpl = PiecewiseConstant::HParams{.boundaries = {4}, .values = {1.0, 1e35}}};
  task_of(diverging).learner.max_skipped_in_a_row = 2;
  require_same_log(diverging, "2 steps in a row were skipped");
}

}  // namespace
}  // namespace tessera
