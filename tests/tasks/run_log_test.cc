// SPDX-License-Identifier: Apache-2.0
// The machine-readable logs of a run, as documented in docs/formats.md.
#include "tasks/logging/run_log.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

TrainLine line_of(int64_t step) {
  return {.step = step,
          .loss = 0.1,
          .learning_rate = 1e-5,
          .grad_norm = std::numeric_limits<double>::quiet_NaN(),
          .tokens = 1234567890123,
          .tokens_per_sec = 1.0 / 3.0,
          .step_time = 0.5,
          .mfu = -1.0,
          .input_wait = 0.0,
          .skipped = 2,
          .metrics = {{"loss", 0.1}, {"log_pplx", 0.25}},
          .parameter_norms = {}};
}

TEST_CASE("lines of metrics.jsonl have the documented members with exact numbers as valid JSON") {
  const TemporaryDirectory directory;
  {
    RunLog log(directory.path(), 0);
    log.event("start", 0, {{"devices", 1}, {"processes", 1}});
    log.train(line_of(1));
    log.eval(1, {{"eval/validation/log_pplx", 1.5}});
  }
  REQUIRE(read_bytes(directory / "metrics.jsonl") ==
          R"({"event": "start", "step": 0, "devices": 1, "processes": 1}
{"step": 1, "loss": 0.1, "log_pplx": 0.25, "learning_rate": 1e-05, "grad_norm": null, )"
          R"("tokens": 1234567890123, "tokens_per_sec": 0.3333333333333333, "step_time": 0.5, )"
          R"("input_wait": 0, "skipped": 2}
{"step": 1, "eval/validation/log_pplx": 1.5}
)");
}

TEST_CASE("a resumed run's log continues from the restored step") {
  const TemporaryDirectory directory;
  {
    RunLog log(directory.path(), 0);
    for (int64_t step = 1; step <= 5; ++step) log.train(line_of(step));
  }
  {
    RunLog log(directory.path(), 3);
    log.event("restore", 3);
    log.train(line_of(4));
  }
  const std::string text = read_bytes(directory / "metrics.jsonl");
  REQUIRE(std::count(text.begin(), text.end(), '\n') == 5);
  REQUIRE_THAT(text, Contains("\"step\": 3,") && !Contains("\"step\": 5,"));
}

TEST_CASE("summaries have one directory per split") {
  const TemporaryDirectory directory;
  RunLog log(directory.path(), 0);
  log.summarise(line_of(1));
  log.eval(1, {{"eval/validation/log_pplx", 1.5}, {"eval/books/log_pplx", 2.5}});
  for (const char* split : {"train", "validation", "books"}) {
    const auto folder = directory / "summaries" / split;
    REQUIRE(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
    const auto file = std::filesystem::directory_iterator(folder)->path();
    REQUIRE_THAT(read_bytes(file), Contains("log_pplx"));
  }
}

TEST_CASE("each failure is logged as one line with the time") {
  const TemporaryDirectory directory;
  log_failure(directory.path(), "process 1 (host b) is missing");
  log_failure(directory.path(), "of two\nlines");
  const std::string text = read_bytes(directory / "failures.log");
  const std::string time = "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ ";
  REQUIRE_THAT(
      text, Catch::Matches(time + "process 1 \\(host b\\) is missing\n" + time + "of two lines\n"));
}

TEST_CASE("no failure is logged through a link or into a missing directory") {
  const TemporaryDirectory directory;
  write_bytes(directory / "target", "as it was");
  std::filesystem::create_symlink("target", directory / "failures.log");
  log_failure(directory.path(), "a failure");
  REQUIRE(read_bytes(directory / "target") == "as it was");
  log_failure(directory / "none", "a failure");
  REQUIRE_FALSE(std::filesystem::exists(directory / "none"));
}

}  // namespace

}  // namespace tessera
