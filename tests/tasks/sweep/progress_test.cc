// SPDX-License-Identifier: Apache-2.0
// The progress line of a sweep: its counts, its best trial, and the time left.
#include "tasks/sweep/progress.h"

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

SweepRecord record_of(const std::vector<TrialState>& states) {
  SweepRecord record{.experiment = "a.B", .metric = {"loss", SweepGoal::kMin}, .trials = {}};
  for (const TrialState state : states) {
    TrialRecord trial{.state = state};
    trial.trial.number = std::ssize(record.trials) + 1;
    record.trials.push_back(trial);
  }
  return record;
}

void set_progress(TrialRecord& trial, double seconds, double part) {
  trial.seconds = seconds;
  trial.part = part;
}

constexpr TrialState kDone = TrialState::kDone, kRunning = TrialState::kRunning,
                     kWaiting = TrialState::kWaiting, kFailed = TrialState::kFailed,
                     kInterrupted = TrialState::kInterrupted;

TEST_CASE("the line has trials done, running and failed, the best one and the time left") {
  SweepRecord record = record_of({kDone, kDone, kFailed, kRunning, kRunning, kWaiting});
  REQUIRE(sweep_progress_text(record_of({kRunning, kWaiting}), 1) == "trials 0/2 done  1 running");
  set_progress(record.trials[0], 90.0, 1.0);
  set_progress(record.trials[1], 110.0, 1.0);
  set_progress(record.trials[3], 40.0, 0.4);
  set_progress(record.trials[4], 10.0, 0.0);
  record.trials[0].score = Score{.step = 5, .final = 2.5};
  record.trials[1].score = Score{.step = 5, .final = 2.25};
  // 60 s and 90 s of the running ones, 100 s of the waiting one, on two processes.
  REQUIRE(sweep_progress_text(record, 2) ==
          "trials 2/6 done  2 running  1 failed  best 2.25 (trial 2)  2:05 left");
}

TEST_CASE("the time left is that of the longest trial at least, and unknown while none tells") {
  SweepRecord first = record_of({kRunning, kWaiting, kInterrupted});
  set_progress(first.trials[0], 9.0, 0.0);
  REQUIRE_FALSE(seconds_left(first, 4).has_value());
  // A trial takes 40 s: 30 s are left of this one.
  set_progress(first.trials[0], 10.0, 0.25);
  REQUIRE(*seconds_left(first, 4) == Approx(40.0));
  REQUIRE(*seconds_left(first, 1) == Approx(110.0));
  SweepRecord known = record_of({kDone, kRunning});
  set_progress(known.trials[0], 20.0, 1.0);
  set_progress(known.trials[1], 50.0, 0.0);
  REQUIRE(*seconds_left(known, 1) == 0.0);  // It takes longer than the others.
  set_progress(known.trials[1], 8.0, 0.0);
  REQUIRE(*seconds_left(known, 1) == Approx(12.0));
}

TEST_CASE("of a resumed trial only the steps of this sweep tell how long one takes") {
  SweepRecord record = record_of({kDone, kRunning, kInterrupted});
  record.trials[0].part_before = record.trials[0].part = 1.0;  // Before this sweep.
  record.trials[1].part_before = 0.5;
  record.trials[2].part_before = record.trials[2].part = 0.75;
  set_progress(record.trials[1], 10.0, 0.6);
  // A tenth takes 10 s: four of the one, and two and a half of the other.
  REQUIRE(*seconds_left(record, 1) == Approx(65.0));
}

TEST_CASE("the part that a run has done is read from its files, whole or not") {
  const TemporaryDirectory folder;
  REQUIRE(done_part(folder.path()) == 0.0);
  write_bytes(folder / "hparams.toml", "# a.B\n[task.train]\nnum_train_steps = 8\n");
  REQUIRE(done_part(folder.path()) == 0.0);
  write_bytes(folder / "metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 2}\n");
  REQUIRE(done_part(folder.path()) == 0.25);
  write_bytes(folder / "metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n{\"st");
  REQUIRE(done_part(folder.path()) == 0.0);
  write_bytes(folder / "hparams.toml", "# a.B\n[task.tr");
  REQUIRE(done_part(folder.path()) == 0.0);
}

}  // namespace
}  // namespace tessera
