// SPDX-License-Identifier: Apache-2.0
#include "tasks/logging/jsonl_writer.h"

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

}  // namespace
}  // namespace tessera
