// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/trackers/trackers.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "core/base/process.h"
#include "core/hparams/text.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/run/trackers/exec_tracker.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Kind = TrackerRecord::Kind;

constexpr std::string_view kNotify = "notify";

// Adds the values of a configuration by path.
void add_values(const Tree& tree, const std::string& path,
                std::map<std::string, std::string>* values) {
  if (!tree.is_table()) {
    if (tree.is_set()) (*values)[path] = tree.is_text() ? tree.text : tree.value_text();
    return;
  }
  for (size_t i = 0; i < tree.items.size(); ++i)
    add_values(tree.items[i], tree.item_path(path, i), values);
}

// The run's own id, made at its first start.
std::string id_of(const fs::path& directory) {
  const fs::path file = directory / "trackers/id";
  if (fs::exists(file)) return read_file(file);
  std::random_device random;
  const std::string id = fmt::format("{:08x}{:08x}", random(), random());
  fs::create_directories(file.parent_path());
  write_file_atomically(file, id);
  return id;
}

std::string line_text(std::string_view line) { return fmt::format("{}\n", line); }

}  // namespace

void check_trackers(const TrainHParams& p) {
  for (const auto& [name, tracker] : p.trackers) {
    const ErrorContext where("task.train.trackers." + name);
    if (name.empty() || name == kNotify || name.find('/') != std::string::npos)
      fail("the tracker's name is '{}', expected a word other than '{}' without '/'", name,
           kNotify);
    tracker.instantiate();
  }
}

std::unique_ptr<Trackers> Trackers::start(const TrainHParams& p, const std::string& name,
                                          const std::string& hparams_toml,
                                          const fs::path& directory, int64_t step, Warn warn) {
  if (p.trackers.empty() && p.notify.empty()) return nullptr;
  TrackedRun run{.tracker = "",
                 .id = id_of(directory),
                 .name = name,
                 .directory = fs::absolute(directory),
                 .step = step,
                 .tags = p.tags,
                 .config = {}};
  add_values(parse_toml(hparams_toml, "hparams.toml"), "", &run.config);
  std::unique_ptr<Trackers> all(
      new Trackers(run.directory, p.tracker_wait_seconds, std::move(warn)));
  for (const auto& [tracker, tpl] : p.trackers) {
    run.tracker = tracker;
    all->queues_.try_emplace(tracker, tpl.instantiate(), run);
  }
  if (p.notify.empty()) return all;
  run.tracker = kNotify;
  all->queues_.try_emplace(run.tracker, std::make_unique<NotifyCommand>(p.notify), run);
  return all;
}

void Trackers::add(TrackerRecord record) {
  record.milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  for (auto& [name, queue] : queues_) queue.add(record);
  warn_of_problems();
}

void Trackers::warn_of_problems() {
  for (auto& [name, queue] : queues_)
    if (const std::string problem = queue.take_problem(); !problem.empty())
      warn_(fmt::format("warning: tracker {}: {}", name, problem));
}

void Trackers::metrics(int64_t step, const std::string& line) {
  TrackerRecord record{.kind = Kind::kMetrics, .step = step, .lines = line_text(line)};
  const Json members = parse_json(line, "metrics.jsonl");
  for (const auto& [name, value] : members.as_object())
    if (name != "step" && (value.is_number() || value.is_null()))
      record.metrics[name] = value.is_null() ? std::nan("") : value.as_number();
  add(std::move(record));
}

void Trackers::event(int64_t step, std::string_view line, std::string_view name) {
  add({.kind = Kind::kEvent, .step = step, .lines = line_text(line), .name = std::string(name)});
}

void Trackers::samples(int64_t step, const std::vector<std::string>& lines,
                       const std::map<std::string, std::string>& pages) {
  TrackerRecord record{.kind = Kind::kSamples, .step = step, .texts = pages};
  for (const std::string& line : lines)
    record.lines += R"({"record": "sample", )" + line_text(line.substr(1));
  add(std::move(record));
}

void Trackers::histogram(int64_t step, const std::string& name, const Bins& bins) {
  add({.kind = Kind::kHistogram,
       .step = step,
       .lines = line_text(json_object({{"record", "histogram"},
                                       {"step", step},
                                       {"name", name},
                                       {"edges", RawJson{json_list(bins.edges)}},
                                       {"counts", RawJson{json_list(bins.counts)}}})),
       .name = name});
}

std::map<std::string, int64_t> Trackers::finish(int64_t step, std::string_view line,
                                                std::string_view name) {
  for (const auto& entry : fs::directory_iterator(directory_)) {
    const fs::path file = entry.path().filename();
    if (file.extension() != ".svg" && file != "report.html") continue;
    add({.kind = Kind::kFile,
         .step = step,
         .lines =
             line_text(json_object({{"record", "file"}, {"step", step}, {"name", file.string()}})),
         .name = file.string()});
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(wait_seconds_);
  const TrackerRecord end{.kind = Kind::kEvent,
                          .step = step,
                          .milliseconds = std::time(nullptr) * int64_t{1000},
                          .lines = line_text(line),
                          .name = std::string(name)};
  for (auto& [tracker, queue] : queues_) queue.begin_end(end);
  std::map<std::string, int64_t> lost;
  for (auto& [tracker, queue] : queues_)
    if (const int64_t dropped = queue.finish(deadline); dropped > 0) lost[tracker] = dropped;
  warn_of_problems();
  for (const auto& [tracker, dropped] : lost)
    warn_(fmt::format("warning: tracker {} did not get {} records", tracker, dropped));
  return lost;
}

using Clock = std::chrono::steady_clock;

struct TrackerQueue::State {
  State(std::unique_ptr<BaseTracker> given, TrackedRun of, size_t most)
      : tracker(std::move(given)), run(std::move(of)), most_waiting(most) {}

  // Calls until it succeeds, at growing intervals. False if the tracker has ended instead.
  bool persist(const std::function<void()>& call);
  // Takes the next records; none once the run has ended and no more wait.
  std::vector<TrackerRecord> take();
  void end_with(const std::string& text);

  const std::unique_ptr<BaseTracker> tracker;
  const TrackedRun run;
  const size_t most_waiting;

  std::mutex mutex;  // Guards all below.
  std::condition_variable changed;
  std::deque<TrackerRecord> waiting;
  std::optional<TrackerRecord> end;
  size_t under_way = 0;  // Records that the tracker is being given.
  int64_t dropped = 0;
  std::string problem, last_problem;
  bool is_done = false;     // The thread makes no further call.
  bool is_refused = false;  // It has ended before the run.
};

void TrackerQueue::State::end_with(const std::string& text) {
  const std::lock_guard lock(mutex);
  if (!tracker->is_abandoned()) problem = text;
  is_refused = true;
  dropped += static_cast<int64_t>(waiting.size() + std::exchange(under_way, 0));
  waiting.clear();
}

bool TrackerQueue::State::persist(const std::function<void()>& call) {
  constexpr std::chrono::milliseconds kFirst(500), kLongest(30'000);
  for (auto pause = kFirst;; pause = std::min(2 * pause, kLongest)) {
    std::string text;
    try {
      call();
      return true;
    } catch (const TrackerRefused& error) {
      end_with(fmt::format("{}; the run continues without this tracker", error.what()));
      return false;
    } catch (const std::exception& error) {
      text = error_text(error);
    }
    std::unique_lock lock(mutex);
    if (tracker->is_abandoned()) return false;
    if (std::exchange(last_problem, text) != text)
      problem = text + "; it is tried again, and the run continues";
    // At the end there is no time for long pauses.
    const bool was_ending = end.has_value();
    changed.wait_for(lock, was_ending ? kFirst : pause,
                     [&] { return tracker->is_abandoned() || end.has_value() != was_ending; });
    if (tracker->is_abandoned()) return false;
  }
}

std::vector<TrackerRecord> TrackerQueue::State::take() {
  constexpr size_t kMostAtOnce = 500;
  std::unique_lock lock(mutex);
  under_way = 0;
  changed.wait(lock, [&] { return !waiting.empty() || end || tracker->is_abandoned(); });
  if (tracker->is_abandoned()) return {};
  under_way = std::min(waiting.size(), kMostAtOnce);
  const auto last = waiting.begin() + static_cast<std::ptrdiff_t>(under_way);
  std::vector<TrackerRecord> taken(std::make_move_iterator(waiting.begin()),
                                   std::make_move_iterator(last));
  waiting.erase(waiting.begin(), last);
  return taken;
}

void TrackerQueue::work(const std::shared_ptr<State>& state) {
  BaseTracker& tracker = *state->tracker;
  bool goes_on = state->persist([&] { tracker.start(state->run); });
  while (goes_on) {
    const std::vector<TrackerRecord> records = state->take();
    if (records.empty()) break;
    goes_on = state->persist([&] { tracker.write(records); });
  }
  if (goes_on && !tracker.is_abandoned()) state->persist([&] { tracker.finish(*state->end); });
  const std::lock_guard lock(state->mutex);
  state->is_done = true;
  state->changed.notify_all();
}

TrackerQueue::TrackerQueue(std::unique_ptr<BaseTracker> tracker, const TrackedRun& run,
                           size_t most_waiting)
    : state_(std::make_shared<State>(std::move(tracker), run, most_waiting)),
      thread_(start_thread([state = state_] { work(state); })) {}

TrackerQueue::~TrackerQueue() {
  if (thread_.joinable()) finish(Clock::now());
}

void TrackerQueue::add(const TrackerRecord& record) {
  const std::lock_guard lock(state_->mutex);
  if (state_->is_refused || state_->waiting.size() >= state_->most_waiting) {
    ++state_->dropped;
    return;
  }
  state_->waiting.push_back(record);
  state_->changed.notify_all();
}

void TrackerQueue::begin_end(const TrackerRecord& end) {
  const std::lock_guard lock(state_->mutex);
  state_->end = end;
  state_->changed.notify_all();
}

int64_t TrackerQueue::finish(Clock::time_point deadline) {
  const auto is_done = [&] { return state_->is_done; };
  std::unique_lock lock(state_->mutex);
  if (!state_->changed.wait_until(lock, deadline, is_done)) {
    state_->tracker->abandon();
    state_->changed.notify_all();
    state_->changed.wait_for(lock, std::chrono::seconds(1), is_done);
  }
  const int64_t lost =
      state_->dropped + static_cast<int64_t>(state_->waiting.size() + state_->under_way);
  const bool ends = state_->is_done;
  lock.unlock();
  if (ends)
    thread_.join();
  else
    thread_.detach();
  return lost;
}

std::string TrackerQueue::take_problem() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->problem, "");
}

}  // namespace tessera
