// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <fmt/format.h>

#include "tasks/logging/jsonl_writer.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

std::string train_line(int64_t step) {
  return fmt::format("{{\"step\": {}, \"loss\": 1, \"grad_norm\": 2}}\n", step);
}

std::string lines(int64_t first, int64_t last, int64_t interval = 1) {
  std::string text;
  for (int64_t step = first; step <= last; step += interval) text += train_line(step);
  return text;
}

std::string start(int64_t step, int64_t interval) {
  return fmt::format("{{\"event\": \"start\", \"step\": {}, \"metrics_interval_steps\": {}}}\n",
                     step, interval);
}

TEST_CASE("a complete log has no gap") {
  REQUIRE(describe_log_gaps(start(0, 1) + lines(1, 9), 9, 1).empty());
  REQUIRE(describe_log_gaps(start(0, 5) + lines(5, 20, 5), 22, 5).empty());
  REQUIRE(describe_log_gaps(start(0, 0) + lines(9, 9), 9, 0).empty());
  // The interval was different before the first resume.
  REQUIRE(
      describe_log_gaps(start(0, 1) + lines(1, 7) + start(7, 4) + lines(8, 16, 4), 18, 4).empty());
  REQUIRE(describe_log_gaps("", 0, 1).empty());
}

TEST_CASE("lost lines are reported as steps and ranges of steps") {
  REQUIRE(describe_log_gaps(start(0, 1) + lines(1, 3) + lines(5, 9), 9, 1) ==
          "metrics.jsonl has lost the lines of 1 training step (4); the run goes on without them");
  REQUIRE(describe_log_gaps(lines(1, 3) + lines(11, 12) + lines(14, 20), 22, 1) ==
          "metrics.jsonl has lost the lines of 10 training steps (4 to 10, 13, 21 to 22); the run "
          "goes on without them");
  REQUIRE_THAT(describe_log_gaps(lines(2, 20, 2), 20, 1), Catch::Contains("(1, 3, 5 and 7 more"));
  REQUIRE_THAT(describe_log_gaps("", 40, 10), Catch::Contains("4 training steps (10 to 40)"));
  // Evaluation lines do not count as training lines.
  REQUIRE_THAT(describe_log_gaps(lines(1, 3) + "{\"step\": 4, \"eval/v/loss\": 1}\n", 4, 1),
               Catch::Contains("1 training step (4)"));
}

}  // namespace
}  // namespace tessera
