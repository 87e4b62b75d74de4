// SPDX-License-Identifier: Apache-2.0
// A sweep's records of its trials: the metric and the table.
#include "tasks/sweep/trials.h"
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

TEST_CASE("a table of many settings fits 100 columns and goes on below") {
  SweepRecord record = small_record();
  for (TrialRecord& trial : record.trials)
    for (int i = 0; i < 8; ++i)
      trial.trial.settings.push_back({fmt::format("knob_{}", i), "a_value_with_many_characters"});
  const std::string table = trial_table(record);
  for (size_t begin = 0; begin < table.size(); begin = table.find('\n', begin) + 1)
    REQUIRE(table.find('\n', begin) - begin <= 100);
  REQUIRE_THAT(table, Catch::Contains("\ntrial                    knob_3 ") &&
                          Catch::Contains("\ntrial  at step  time\n    3       20     -\n"));
}

}  // namespace
}  // namespace tessera
