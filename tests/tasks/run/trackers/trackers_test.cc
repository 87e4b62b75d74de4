// SPDX-License-Identifier: Apache-2.0
// Trackers that are programs or classes of the user's: what they get, and that one that is slow,
// gone or full neither delays nor ends a run.
#include "tasks/run/trackers/trackers.h"

#include <sys/resource.h>

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "tasks/run/log/run_log.h"
#include "tasks/run/trackers/exec_tracker.h"
#include "tasks/task/learner/optimizers.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/tasks/run/report/page_of_run.h"

namespace tessera {
namespace {

using Catch::Contains;
using Clock = std::chrono::steady_clock;

// Writing to a program that has ended is an error, not a signal (prepare_program of runexp).
const auto kBrokenPipe = std::signal(SIGPIPE, SIG_IGN);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Blocks in write() until it may go on.
class GatedTracker final : public BaseTracker {
 public:
  void start(const TrackedRun&) override {}
  void write(const std::vector<TrackerRecord>& records) override {
    std::unique_lock lock(mutex_);
    written_ += std::ssize(records);
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
  }
  void finish(const TrackerRecord& end) override { end_ = end.name; }
  void await_write() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return written_ > 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  int64_t written_ = 0;
  std::string end_;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

TEST_CASE("a full queue drops new records at once and counts them") {
  auto owned = std::make_unique<GatedTracker>();
  GatedTracker& tracker = *owned;
  TrackerQueue queue(std::move(owned), {}, 10);
  queue.add({.step = 1});
  tracker.await_write();
  const auto begin = Clock::now();
  for (int64_t step = 2; step <= 26; ++step) queue.add({.step = step});
  REQUIRE(seconds_since(begin) < 0.5);
  tracker.open();
  queue.begin_end({.name = "done"});
  REQUIRE(queue.finish(Clock::now() + std::chrono::seconds(10)) == 15);
}

TEST_CASE("a tracker that never returns is left after its time, with its records counted") {
  auto owned = std::make_unique<GatedTracker>();
  GatedTracker& tracker = *owned;  // Lives on in its thread.
  const auto begin = Clock::now();
  {
    TrackerQueue queue(std::move(owned), {});
    queue.add({.step = 1});
    tracker.await_write();
    queue.add({.step = 2});
    queue.begin_end({.name = "done"});
    REQUIRE(queue.finish(Clock::now() + std::chrono::milliseconds(200)) == 2);
  }
  REQUIRE(seconds_since(begin) < 5.0);
  tracker.open();
}

TrainHParams tracked_by(const std::string& command) {
  TrainHParams p;
  p.trackers["mine"] = ExecTracker::HParams{.command = command};
  p.tags = {"first", "owner=me"};
  return p;
}

// Records a line, a histogram, a sample and the end; returns the warnings.
std::vector<std::string> record_with(const TrainHParams& p, const TemporaryDirectory& directory,
                                     int64_t lines = 1) {
  std::vector<std::string> warnings;
  RunLog log(directory.path(), 0,
             Trackers::start(p, "x.Y/run", "num = 3\nname = \"a\"\n[part]\nsizes = [1, 2]\n",
                             directory.path(), 0,
                             [&](std::string_view line) { warnings.emplace_back(line); }));
  log.event("start", 0);
  for (int64_t step = 1; step <= lines; ++step)
    log.train({.step = step, .loss = 2.5, .metrics = {{"log_pplx", 2.5}}});
  log.summarise({.step = 1, .histograms = {{"load", {0.0, 1.0, 1.0}}}});
  log.samples(1, {R"({"step": 1, "continuation": "abc"})"}, {{"samples/prompt_1", "abc"}});
  log.event("done", lines);
  return warnings;
}

TEST_CASE("exec gets the lines of metrics.jsonl, the configuration, histograms and samples") {
  const TemporaryDirectory directory;
  const std::string output = (directory / "out").string();
  REQUIRE(record_with(tracked_by("cat > " + output), directory).empty());
  std::string text = read_bytes(output);
  REQUIRE_THAT(text,
               Contains(R"("name": "x.Y/run")") && Contains(R"("tags": ["first", "owner=me"])") &&
                   Contains(R"("num": "3", "part.sizes": "[1, 2]")") &&
                   Contains(R"({"record": "sample", "step": 1, "continuation": "abc"})") &&
                   Contains(R"({"record": "histogram", "step": 1, "name": "load", "edges": [0, )"));
  std::istringstream lines(text);
  std::string metrics;
  for (std::string line; std::getline(lines, line);)
    if (line.find("\"record\"") == std::string::npos) metrics += line + "\n";
  REQUIRE(metrics == read_bytes(directory / "metrics.jsonl"));
}

TEST_CASE("a command that ends is reported once, and its records count as dropped") {
  const TemporaryDirectory directory;
  TrainHParams p = tracked_by("echo no such server; exit 7");
  const std::vector<std::string> warnings = record_with(p, directory, 2000);
  REQUIRE(warnings.size() == 2);
  REQUIRE_THAT(warnings[0], Contains("tracker mine: the program ended with exit code 7") &&
                                Contains("the run continues without this tracker"));
  REQUIRE_THAT(read_bytes(directory / "trackers/mine.log"), Contains("no such server"));
  const std::string text = read_bytes(directory / "metrics.jsonl");
  REQUIRE_THAT(text, Contains(R"({"event": "tracker_dropped", "step": 2000, "count": )") &&
                         Catch::EndsWith("{\"event\": \"done\", \"step\": 2000}\n"));
}

TEST_CASE("a command that never reads delays the end by its bounded time only") {
  const TemporaryDirectory directory;
  TrainHParams p = tracked_by("exec sleep 1000");
  p.tracker_wait_seconds = 1;
  const auto begin = Clock::now();
  const std::vector<std::string> warnings = record_with(p, directory, 2000);
  REQUIRE(seconds_since(begin) < 5.0);
  REQUIRE(warnings.size() == 1);
  REQUIRE_THAT(warnings[0], Contains("tracker mine did not get "));
}

TEST_CASE("the notification command gets an object at start and end") {
  const TemporaryDirectory directory;
  TrainHParams p;
  p.notify = "cat >> " + (directory / "told").string();
  REQUIRE(record_with(p, directory, 3).empty());
  const std::string told = read_bytes(directory / "told");
  REQUIRE_THAT(told,
               Catch::StartsWith(R"({"event": "start", "step": 0, "name": "x.Y/run", "id": ")") &&
                   Contains(R"({"event": "done", "step": 3, "name": "x.Y/run")"));
  REQUIRE(std::count(told.begin(), told.end(), '\n') == 2);
}

TEST_CASE("the notification command learns of failure and preemption") {
  for (const char* end : {"failed", "preempt"}) {
    CAPTURE(end);
    const TemporaryDirectory directory;
    ExperimentConfig config = tiny_config(400);
    TrainHParams& p = task_of(config).train;
    p.notify = "cat >> " + (directory / "told").string();
    p.tracker_wait_seconds = 60;
    if (end == std::string("failed")) {
      task_of(config).learner.optimizer_tpl = AdamW::HParams{
          .schedule_tpl = PiecewiseConstant::HParams{.boundaries = {2}, .values = {1.0, 1e35}}};
      task_of(config).learner.max_skipped_in_a_row = 3;
      REQUIRE(error_of([&] { run_tiny(config, directory / "run"); }) != "");
    } else {
      std::jthread terminator([&] {
        // Before the handler exists the signal would end this program.
        while (losses_of(directory / "run").size() < 3)
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        std::raise(SIGTERM);
      });
      REQUIRE(run_tiny(config, directory / "run") == 0);
    }
    const std::string told = read_bytes(directory / "told");
    REQUIRE_THAT(told, Catch::StartsWith(R"({"event": "start", "step": 0, )") &&
                           Contains(fmt::format("\n{{\"event\": \"{}\", \"step\": ", end)));
    REQUIRE((told.find(R"("reason": ")") != std::string::npos) == (end == std::string("failed")));
    REQUIRE(std::count(told.begin(), told.end(), '\n') == 2);
  }
}

TEST_CASE("trackers get the report with the last step") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(7);
  TrainHParams& p = task_of(config).train;
  const std::string report = (directory / "run/report.html").string();
  p.trackers["mine"] = ExecTracker::HParams{
      .command = fmt::format("while read -r line; do case \"$line\" in *report.html*) cp {0} "
                             "{0}.kept;; esac; done",
                             report)};
  p.tracker_wait_seconds = 60;
  REQUIRE(run_tiny(config, directory / "run") == 0);
  const Json run = data_of(read_bytes(report + ".kept")).at("runs").as_array()[0];
  REQUIRE(run.at("series").at("loss").at("m").as_array().size() == 7);
}

TEST_CASE("the trackers of a run that has begun may change") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(2);
  REQUIRE(run_tiny(config, directory / "run") == 0);
  TrainHParams& p = task_of(config).train;
  p.num_train_steps = 4;
  p.trackers["mine"] = ExecTracker::HParams{.command = "cat > " + (directory / "out").string()};
  p.notify = "true";
  p.tags = {"late"};
  REQUIRE(run_tiny(config, directory / "run") == 0);
  REQUIRE_THAT(read_bytes(directory / "out"), Contains(R"("tags": ["late"])"));
  REQUIRE_THAT(read_bytes(directory / "run/hparams.toml"), Contains("\"late\""));
  p.trackers.clear();
  p.seed = 7;
  REQUIRE_THAT(error_of([&] { run_tiny(config, directory / "run"); }),
               Contains("different configuration: task.train.seed: 1234 -> 7. Restore"));
}

TEST_CASE("wandb continues the run with its id, and gets new steps and the report") {
  const std::string python = python_with("tomllib");
  if (python.empty()) {
    WARN("skipped: no Python 3.11 with tomllib");
    return;
  }
  const TemporaryDirectory directory;
  // Writes what it is called with as lines of JSON.
  write_bytes(directory / "wandb.py", R"(
import json, os
def note(what, **more):
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps({"call": what, **more}) + "\n")
class Histogram:
    def __init__(self, np_histogram): pass
class Html:
    def __init__(self, data, inject=True): pass
class Run:
    summary = {}
    def log(self, values): note("log", step=values["trainer_step"], names=sorted(values))
    def define_metric(self, name, step_metric=None): pass
    def save(self, path, base_path, policy): note("save", name=os.path.relpath(path, base_path))
    def finish(self, exit_code): note("finish", code=exit_code, end=self.summary["end"])
def init(**options):
    note("init", id=options["id"], resume=options["resume"])
    return Run()
)");
  write_bytes(directory / "python",
              fmt::format("#!/bin/sh\nexport PYTHONPATH={0} NOTES={0}/notes\nexec {1} \"$@\"\n",
                          directory.path().string(), python));
  std::filesystem::permissions(directory / "python", std::filesystem::perms::owner_all);
  ExperimentConfig config = tiny_config(2);
  TrainHParams& p = task_of(config).train;
  p.trackers["w"] = WandbTracker::HParams{.python = (directory / "python").string()};
  p.tracker_wait_seconds = 60;
  REQUIRE(run_tiny(config, directory / "run") == 0);
  const std::string first = read_bytes(directory / "notes");
  p.num_train_steps = 4;
  REQUIRE(run_tiny(config, directory / "run") == 0);
  const std::string second = read_bytes(directory / "notes").substr(first.size());
  const std::string init =
      fmt::format("{{\"call\": \"init\", \"id\": \"{}\", \"resume\": \"allow\"}}\n",
                  read_bytes(directory / "run/trackers/id"));
  for (const std::string& notes : {first, second})
    REQUIRE_THAT(notes, Catch::StartsWith(init) && Contains(R"("save", "name": "report.html")") &&
                            Catch::EndsWith("{\"call\": \"finish\", \"code\": 0, \"end\": "
                                            "\"done\"}\n"));
  REQUIRE_THAT(first, Contains(R"("step": 1,)") && Contains(R"("step": 2,)"));
  REQUIRE_THAT(
      second, !Contains(R"("step": 1,)") && Contains(R"("step": 3,)") && Contains(R"("step": 4,)"));
}

TEST_CASE("a resumed run keeps its id") {
  const TemporaryDirectory directory;
  record_with(tracked_by("cat > " + (directory / "a").string()), directory);
  record_with(tracked_by("cat > " + (directory / "b").string()), directory);
  const auto first_line = [&](const char* file) {
    const std::string text = read_bytes(directory / file);
    return text.substr(0, text.find('\n'));
  };
  REQUIRE(first_line("a") == first_line("b"));
}

TEST_CASE("a run with a dead tracker trains as without it") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(20);
  double before = processor_seconds();
  REQUIRE(run_tiny(config, directory / "without") == 0);
  const double without = processor_seconds() - before;
  TrainHParams& p = task_of(config).train;
  p.trackers["dead"] = ExecTracker::HParams{.command = "false"};
  p.trackers["deaf"] = ExecTracker::HParams{.command = "exec sleep 1000"};
  p.notify = "false";
  p.tracker_wait_seconds = 1;
  before = processor_seconds();
  REQUIRE(run_tiny(config, directory / "with") == 0);
  REQUIRE(processor_seconds() - before < without + 3.0);
  REQUIRE(losses_of(directory / "with") == losses_of(directory / "without"));
  REQUIRE_THAT(read_bytes(directory / "with/metrics.jsonl"),
               Contains(R"("tracker": "dead"})") && !Contains("failed"));
}

TEST_CASE("a wrong tracker is an error before the first step") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config();
  task_of(config).train.trackers["bad/name"] = ExecTracker::HParams{.command = "cat"};
  REQUIRE_THAT(error_of([&] { run_tiny(config, directory / "run"); }),
               Contains("'bad/name', expected a word other than 'notify' without '/'"));
}

}  // namespace
}  // namespace tessera
