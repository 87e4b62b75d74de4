// SPDX-License-Identifier: Apache-2.0
// The machine-readable logs of a run, as documented in docs/formats.md.
#include "tasks/run/log/run_log.h"

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

TEST_CASE("summaries group the values that layers have of one metric, and draw histograms") {
  const TemporaryDirectory directory;
  RunLog log(directory.path(), 0);
  const std::map<std::string, double> metrics = {
      {"load_max", 2.0}, {"lm.x_layers[3].ffn.load_max", 2.0}, {"top.5", 0.5}};
  const Histograms histograms = {{"load", {1.0, 2.0}}, {"lm.x_layers[3].ffn.load", {1.0, 2.0}}};
  TrainLine line = line_of(1);
  line.metrics = metrics;
  line.histograms = histograms;
  log.summarise(line);
  std::map<std::string, double> of_eval;
  Histograms histograms_of_eval;
  for (const auto& [name, value] : metrics) of_eval["eval/validation/" + name] = value;
  for (const auto& [name, values] : histograms)
    histograms_of_eval["eval/validation/" + name] = values;
  log.eval(1, of_eval, histograms_of_eval);
  for (const char* split : {"train", "validation"}) {
    INFO(split);
    const auto file = *std::filesystem::directory_iterator(directory / "summaries" / split);
    const std::string text = read_bytes(file.path());
    REQUIRE_THAT(text, Contains("load_max/lm.x_layers[3].ffn") && Contains("top.5"));
    // A tag, then field 5 of a value: a histogram.
    REQUIRE_THAT(text, Contains("\x04load\x2a") && Contains("load/lm.x_layers[3].ffn\x2a"));
  }
  REQUIRE_THAT(read_bytes(directory / "metrics.jsonl"),
               Contains("\"eval/validation/lm.x_layers[3].ffn.load_max\": 2"));
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
