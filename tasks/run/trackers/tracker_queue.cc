// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/trackers/tracker_queue.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/process.h"

namespace tessera {

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
