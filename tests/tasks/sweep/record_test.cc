// SPDX-License-Identifier: Apache-2.0
// What a sweep knows of its trials: sweep.json, the metric, the table and the page.
#include "core/io/file.h"
#include "tasks/sweep/journal.h"
#include "tasks/sweep/page.h"
#include "tasks/sweep/table.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

SweepRecord small_record() {
  SweepRecord record{.experiment = "zoo.Cat", .metric = {"eval/validation/loss"}, .trials = {}};
  for (const SweepTrial& trial :
       trials_of(grid({{"task.rate", {1e-3, 3e-4}}, {"kind", {"a<b", "c"}}})))
    record.trials.push_back({.trial = trial});
  record.trials[0].state = TrialState::kDone;
  record.trials[0].seconds = 61.5;
  record.trials[0].score = Score{.step = 20, .final = 2.5, .best_step = 10, .best = 2.25};
  record.trials[2].state = TrialState::kDone;
  record.trials[2].score = Score{.step = 20, .final = 1.5, .best_step = 20, .best = 1.5};
  record.trials[3].state = TrialState::kFailed;
  record.trials[3].reason = "was killed by SIGKILL: step 3 & <more>";
  return record;
}

TEST_CASE("sweep.json reads back as it was written") {
  const TemporaryDirectory folder;
  write_sweep_record(folder / "sweep.json", small_record());
  const SweepRecord read = read_sweep_record(folder / "sweep.json");
  REQUIRE(read.experiment == "zoo.Cat");
  REQUIRE(read.metric.name == "eval/validation/loss");
  REQUIRE(read.trials.size() == 4);
  REQUIRE(read.trials[0].seconds == 61.5);
  REQUIRE(read.trials[0].score->best_step == 10);
  REQUIRE(read.trials[1].state == TrialState::kWaiting);
  REQUIRE(read.trials[2].trial.text() == "task.rate=0.0003 kind=a<b");
  REQUIRE(read.trials[3].reason == small_record().trials[3].reason);
}

TEST_CASE("a damaged sweep.json is an error that names it") {
  const TemporaryDirectory folder;
  const auto error = [&](const std::string& text) {
    write_file_atomically(folder / "sweep.json", text);
    return error_of([&] { read_sweep_record(folder / "sweep.json"); });
  };
  REQUIRE_THAT(error("{\"a\": 1}"), Catch::Contains("is not a sweep.json of this version"));
  REQUIRE_THAT(error("{\"tessera_sweep\": 1, \"tri"), Catch::Contains("sweep.json"));
  REQUIRE_THAT(error("{\"tessera_sweep\": 1, \"experiment\": 3}"),
               Catch::Contains("experiment is"));
}

TEST_CASE("a second call keeps what is known and refuses another space") {
  const SweepRecord before = small_record();
  std::vector<SweepTrial> trials;
  for (const TrialRecord& record : before.trials) trials.push_back(record.trial);
  trials.push_back({5, {{"task.rate", "0.1"}, {"kind", "c"}}});
  const std::vector<TrialRecord> more = continued(trials, before);
  REQUIRE(more.size() == 5);
  REQUIRE(more[3].state == TrialState::kFailed);
  REQUIRE(more[4].state == TrialState::kWaiting);
  trials.resize(3);
  REQUIRE_THAT(error_of([&] { continued(trials, before); }),
               Catch::Contains("has 4 trials, but now it would have 3"));
  trials[1].settings[0].value = "0.5";
  REQUIRE_THAT(error_of([&] { continued(trials, before); }),
               Catch::Contains("trial 2 of the sweep in this directory is task.rate=0.001 kind=c, "
                               "but now it would be task.rate=0.5 kind=c"));
}

TEST_CASE("the metric is chosen among those that runs log") {
  const std::vector<std::string> logged = {"eval/other/loss", "eval/validation/accuracy",
                                           "eval/validation/loss", "loss"};
  REQUIRE(choose_metric({}, logged).name == "eval/validation/loss");
  REQUIRE(choose_metric({}, {"eval/books/accuracy", "eval/books/loss", "loss"}).name ==
          "eval/books/loss");
  REQUIRE(choose_metric({}, {"loss", "grad_norm"}).name == "loss");
  Sweep sweep;
  sweep.metric = "eval/validation/accuracy";
  REQUIRE(choose_metric(sweep, logged).goal == SweepGoal::kMax);
  sweep.goal = SweepGoal::kMin;
  REQUIRE(choose_metric(sweep, logged).goal == SweepGoal::kMin);
  sweep.metric = "eval/validation/los";
  REQUIRE_THAT(error_of([&] { choose_metric(sweep, logged); }),
               Catch::Contains("did you mean 'eval/validation/loss'?; they log eval/other/loss"));
}

TEST_CASE("a score has the final and the best value of the log") {
  const TemporaryDirectory folder;
  write_bytes(folder / "metrics.jsonl",
              "{\"step\": 1, \"loss\": 3.5}\n{\"step\": 2, \"loss\": 2.5}\n"
              "{\"step\": 2, \"eval/validation/loss\": 9}\n{\"step\": 3, \"loss\": null}\n"
              "{\"step\": 4, \"loss\": 3}\n");
  const auto score = score_of(folder.path(), {"loss", SweepGoal::kMin});
  REQUIRE((score->step == 4 && score->final == 3.0 && score->best_step == 2 && score->best == 2.5));
  REQUIRE(score_of(folder.path(), {"loss", SweepGoal::kMax})->best == 3.5);
  REQUIRE(!score_of(folder.path(), {"accuracy", SweepGoal::kMax}));
}

TEST_CASE("the table lists the best trial first, and why trials failed") {
  const std::string table = trial_table(small_record());
  INFO(table);
  REQUIRE_THAT(table, Catch::StartsWith("trial    rate  kind    state  step  eval/validation/loss  "
                                        "best  at step  time\n    3  0.0003   a<b     done    20"));
  REQUIRE_THAT(table, Catch::EndsWith("trial 4 was killed by SIGKILL: step 3 & <more>\n"));
}

TEST_CASE("a table of many settings fits 100 columns and says what it leaves out") {
  SweepRecord record = small_record();
  for (TrialRecord& trial : record.trials)
    for (int i = 0; i < 8; ++i)
      trial.trial.settings.push_back({fmt::format("knob_{}", i), "a_value_with_many_characters"});
  const std::string table = trial_table(record);
  for (size_t begin = 0; begin < table.size(); begin = table.find('\n', begin) + 1)
    REQUIRE(table.find('\n', begin) - begin <= 100);
  REQUIRE_THAT(table, Catch::Contains("more settings in sweep.json)"));
}

TEST_CASE("the page has a line for each trial, is self-contained, and escapes texts") {
  const std::string page = sweep_page(small_record());
  size_t lines = 0;
  for (size_t at = 0; (at = page.find("<polyline", at)) != std::string::npos; ++at) ++lines;
  REQUIRE(lines == 4);
  REQUIRE_THAT(page, Catch::Contains("kind=a&lt;b") && Catch::Contains("&amp; &lt;more&gt;") &&
                         Catch::Contains("prefers-color-scheme: dark"));
  for (const char* reference : {"<script", "href=", "src=", "url(", "a<b"})
    REQUIRE(page.find(reference) == std::string::npos);
}

TEST_CASE("a page can be written before any trial has a value") {
  SweepRecord record = small_record();
  for (TrialRecord& trial : record.trials) trial.score.reset();
  REQUIRE_THAT(sweep_page(record), Catch::Contains("no value (waiting)"));
}

}  // namespace
}  // namespace tessera
