// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/log/jsonl_writer.h"

#include <string>

#include <fmt/format.h>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

TEST_CASE("the step of a line is parsed if the line is complete") {
  REQUIRE(step_of_line(R"({"step": 12, "loss": 3})") == 12);
  REQUIRE(step_of_line(R"({"event": "save", "step":0})") == 0);
  REQUIRE_FALSE(step_of_line(R"({"steps": 12})"));
  REQUIRE_FALSE(step_of_line(R"({"step": 1)"));
  REQUIRE_FALSE(step_of_line(R"({"step": "x"})"));
  REQUIRE_FALSE(step_of_line(""));
}

TEST_CASE("the end of a log says whether its run is done or has failed, and why") {
  const TemporaryDirectory folder;
  const auto end = [&](const std::string& last) {
    write_bytes(folder / "metrics.jsonl", "{\"step\": 2, \"loss\": 2}\n" + last);
    return end_of_log(folder.path());
  };
  REQUIRE(end_of_log(folder.path()).event.empty());
  REQUIRE((end("").step == 2 && end("").event.empty()));
  REQUIRE(end("{\"event\": \"done\", \"step\": 3}\n").event == "done");
  const LogEnd failed =
      end("{\"event\": \"failed\", \"step\": 3, \"reason\": \"it \\\"is\\\"\"}\n");
  REQUIRE((failed.event == "failed" && failed.step == 3 && failed.reason == "it \"is\""));
  const LogEnd torn = end("{\"event\": \"done\", \"st");
  REQUIRE((torn.step == 0 && torn.event.empty()));
}

TEST_CASE("a resumed log drops lines after its step and a partial last line") {
  const TemporaryDirectory directory;
  const auto path = directory / "metrics.jsonl";
  {
    JsonlWriter log(path, 0);
    log.append(R"({"event": "start", "step": 0})");
    log.append(R"({"step": 1})");
    log.append(R"({"step": 2})");
    log.append(R"({"event": "save", "step": 2})");
    log.append(R"({"step": 3})");
  }
  write_bytes(path, read_bytes(path) + R"({"step": 1, "lo)");
  {
    JsonlWriter log(path, 2);
    log.append(R"({"event": "restore", "step": 2})");
  }
  REQUIRE(read_bytes(path) == R"({"event": "start", "step": 0}
{"step": 1}
{"step": 2}
{"event": "save", "step": 2}
{"event": "restore", "step": 2}
)");
}

TEST_CASE("the values of a key in a log are returned by step") {
  const TemporaryDirectory directory;
  const auto path = directory / "metrics.jsonl";
  REQUIRE(values_in_log(path, "eval/v/loss").empty());
  write_bytes(path, R"({"step": 5, "loss": 9}
{"step": 5, "eval/v/loss": 2.5}
{"step": 10, "eval/v/loss": null}
{"step": 15, "eval/v/loss": 1e-05}
{"step": 20, "eval/v/loss": 3)");
  REQUIRE(values_in_log(path, "eval/v/loss") == std::map<int64_t, double>{{5, 2.5}, {15, 1e-05}});
}

TEST_CASE("a log that is a symbolic link is rejected, and its target is unchanged") {
  const TemporaryDirectory directory, elsewhere;
  write_bytes(elsewhere / "precious", "{\"step\": 7}\n");
  std::filesystem::create_symlink(elsewhere / "precious", directory / "metrics.jsonl");
  REQUIRE_THROWS_WITH(JsonlWriter(directory / "metrics.jsonl", 3),
                      Contains("metrics.jsonl is a symbolic link"));
  REQUIRE(read_bytes(elsewhere / "precious") == "{\"step\": 7}\n");
  REQUIRE(std::filesystem::is_symlink(directory / "metrics.jsonl"));
}

TEST_CASE("a log that cannot be opened is an error with the reason") {
  REQUIRE_THROWS_WITH(JsonlWriter("/nowhere/metrics.jsonl", 0), Contains("No such file"));
}

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
          "metrics.jsonl lacks the lines of 1 training step (4); the run continues without them");
  REQUIRE(describe_log_gaps(lines(1, 3) + lines(11, 12) + lines(14, 20), 22, 1) ==
          "metrics.jsonl lacks the lines of 10 training steps (4 to 10, 13, 21 to 22); the run "
          "continues without them");
  REQUIRE_THAT(describe_log_gaps(lines(2, 20, 2), 20, 1), Catch::Contains("(1, 3, 5 and 7 more"));
  REQUIRE_THAT(describe_log_gaps("", 40, 10), Catch::Contains("4 training steps (10 to 40)"));
  // Evaluation lines do not count as training lines.
  REQUIRE_THAT(describe_log_gaps(lines(1, 3) + "{\"step\": 4, \"eval/v/loss\": 1}\n", 4, 1),
               Catch::Contains("1 training step (4)"));
}

}  // namespace

}  // namespace tessera
