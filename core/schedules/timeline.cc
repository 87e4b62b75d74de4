// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/timeline.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

double duration(const PipelineTable& table, const PipelineCosts& costs, const PipelineTask& task) {
  const size_t piece = costs.pieces.size() == 1 ? 0 : static_cast<size_t>(table.piece(task));
  const PieceCost& cost = costs.pieces[piece];
  switch (task.work) {
    case PipelineWork::kForward:
      return cost.forward;
    case PipelineWork::kBackward:
      return cost.backward_input + cost.backward_weight;
    case PipelineWork::kBackwardInput:
      return cost.backward_input;
    case PipelineWork::kBackwardWeight:
      return cost.backward_weight;
  }
  CHECK(false);
}

void check_costs(const PipelineTable& table, const PipelineCosts& costs) {
  const size_t expected = static_cast<size_t>(table.pieces());
  if (costs.pieces.size() != 1 && costs.pieces.size() != expected)
    fail(
        "{}: got the costs of {} pieces, expected {} (stages={} × chunks={}), in the order of the "
        "model, or one for all",
        table.name, costs.pieces.size(), expected, table.stages, table.chunks);
  for (size_t i = 0; i < costs.pieces.size(); ++i) {
    const std::string owner = fmt::format("{}: piece {}", table.name, i);
    check_not_negative(owner, "forward", costs.pieces[i].forward);
    check_not_negative(owner, "backward_input", costs.pieces[i].backward_input);
    check_not_negative(owner, "backward_weight", costs.pieces[i].backward_weight);
  }
  check_not_negative(table.name, "send", costs.send);
}

// Simulates the stages in parallel, each in its order.
class OrderRun {
 public:
  using Duration = std::function<double(const PipelineTask&)>;

  OrderRun(const PipelineTable& table, Duration duration, double send)
      : table_(table),
        duration_(std::move(duration)),
        send_(send),
        makers_(table),
        orders_(stage_orders(table)),
        next_(orders_.size(), 0),
        free_(orders_.size(), 0.0),
        is_done_(table.tasks.size(), false) {
    timeline_.table = table;
    timeline_.tasks.resize(table.tasks.size());
  }

  PipelineTimeline run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int64_t stage = 0; stage < table_.stages; ++stage)
        while (has_next(stage) && missing(next_task(stage)) == ValueMakers::kNobody) {
          run_next(stage);
          progress = true;
        }
    }
    for (int64_t stage = 0; stage < table_.stages; ++stage)
      if (has_next(stage)) fail_by_deadlock(stage);
    for (int64_t stage = 0; stage < table_.stages; ++stage)
      add_bubble({stage, BubbleCause::kDrain, -1, free_[at(stage)], timeline_.finish});
    std::ranges::stable_sort(timeline_.bubbles,
                             [](const Bubble& a, const Bubble& b) { return a.stage < b.stage; });
    return std::move(timeline_);
  }

 private:
  static size_t at(int64_t index) { return static_cast<size_t>(index); }
  const PipelineTask& task(int64_t id) const { return table_.tasks[at(id)]; }
  bool has_next(int64_t stage) const { return next_[at(stage)] < orders_[at(stage)].size(); }
  int64_t next_task(int64_t stage) const { return orders_[at(stage)][next_[at(stage)]]; }

  // Returns the maker of the first needed value that has not arrived, or kNobody.
  int64_t missing(int64_t id) const {
    for (const PipelineValue& value : needed_values(table_, task(id))) {
      const int64_t maker = makers_.maker(value);
      if (!is_done_[at(maker)]) return maker;
    }
    return ValueMakers::kNobody;
  }

  void run_next(int64_t stage) {
    const int64_t id = next_task(stage);
    double start = free_[at(stage)];
    int64_t waits_for = -1;
    for (const PipelineValue& value : needed_values(table_, task(id))) {
      const int64_t maker = makers_.maker(value);
      const int64_t from = task(maker).stage;
      const double arrival = timeline_.tasks[at(maker)].end + (from == stage ? 0.0 : send_);
      if (arrival > start) {
        start = arrival;
        waits_for = from;
      }
    }
    const bool is_first = next_[at(stage)] == 0;
    add_bubble({stage, is_first ? BubbleCause::kWarmUp : BubbleCause::kWaiting,
                is_first ? -1 : waits_for, free_[at(stage)], start});
    const double end = start + duration_(task(id));
    timeline_.tasks[at(id)] = {task(id), start, end};
    timeline_.finish = std::max(timeline_.finish, end);
    free_[at(stage)] = end;
    is_done_[at(id)] = true;
    ++next_[at(stage)];
  }

  void add_bubble(const Bubble& bubble) {
    if (bubble.end > bubble.start) timeline_.bubbles.push_back(bubble);
  }

  // Reports a deadlock: every stage with tasks left waits for a task that another stage, or itself,
  // has not reached. Following these waits from any stage ends in a cycle.
  [[noreturn]] void fail_by_deadlock(int64_t stage) const {
    std::set<int64_t> seen;
    while (seen.insert(stage).second) stage = task(missing(next_task(stage))).stage;
    std::string cycle;
    const int64_t first = stage;
    do {
      const int64_t stopped = next_task(stage);
      const int64_t needed = missing(stopped);
      cycle += fmt::format("{}stage {} stops at {} (tick {}) until stage {} has run {} (tick {})",
                           cycle.empty() ? "" : ", and ", stage, task_text(task(stopped)),
                           task(stopped).tick, task(needed).stage, task_text(task(needed)),
                           task(needed).tick);
      stage = task(needed).stage;
    } while (stage != first);
    fail("{}: the schedule never ends: {}; run one of the awaited tasks earlier in its stage",
         table_.name, cycle);
  }

  const PipelineTable& table_;
  const Duration duration_;
  const double send_;
  const ValueMakers makers_;
  const std::vector<std::vector<int64_t>> orders_;
  std::vector<size_t> next_;   // For each stage: the position in its order.
  std::vector<double> free_;   // When each stage finishes the tasks it has started.
  std::vector<bool> is_done_;  // For each task: whether it is done.
  PipelineTimeline timeline_;
};

// Formats 12 as "12", 1.25 as "1.25": at most four digits after the point.
std::string amount(double value) { return fmt::format("{:g}", std::round(value * 1e4) / 1e4); }

}  // namespace

double PipelineTimeline::idle(int64_t stage) const {
  double sum = 0.0;
  for (const Bubble& bubble : bubbles)
    if (bubble.stage == stage) sum += bubble.end - bubble.start;
  return sum;
}

double PipelineTimeline::bubble_fraction() const {
  double sum = 0.0;
  for (int64_t stage = 0; stage < table.stages; ++stage) sum += idle(stage);
  return finish > 0.0 ? sum / (finish * static_cast<double>(table.stages)) : 0.0;
}

PipelineTimeline pipeline_timeline(const PipelineTable& table, const PipelineCosts& costs) {
  check_complete(table);
  check_costs(table, costs);
  const auto duration_of = [&](const PipelineTask& task) { return duration(table, costs, task); };
  return OrderRun(table, duration_of, costs.send).run();
}

PipelineTable at_earliest_ticks(const PipelineTable& table) {
  check_complete(table);
  const auto one_tick = [](const PipelineTask&) { return 1.0; };
  const PipelineTimeline timeline = OrderRun(table, one_tick, 0.0).run();
  PipelineTable early = table;
  for (size_t i = 0; i < early.tasks.size(); ++i)
    early.tasks[i].tick = static_cast<int64_t>(timeline.tasks[i].start);
  std::ranges::sort(early.tasks);
  return early;
}

std::string bubble_text(const PipelineTimeline& timeline) {
  constexpr const char* kRow = "{:>5} {:>9} {:>9} {:>9} {:>9}{}\n";
  std::string text =
      fmt::format(kRow, "stage", "busy", "idle", "warm-up", "drain", "   waiting for");
  for (int64_t stage = 0; stage < timeline.table.stages; ++stage) {
    double warm_up = 0.0;
    double drain = 0.0;
    std::map<int64_t, double> waits;
    for (const Bubble& bubble : timeline.bubbles) {
      if (bubble.stage != stage) continue;
      double& sum = bubble.cause == BubbleCause::kWarmUp  ? warm_up
                    : bubble.cause == BubbleCause::kDrain ? drain
                                                          : waits[bubble.waits_for];
      sum += bubble.end - bubble.start;
    }
    std::string waiting;
    for (const auto& [other, time] : waits)
      waiting += fmt::format("{} stage {}: {}", waiting.empty() ? "  " : ",", other, amount(time));
    const double idle = timeline.idle(stage);
    text += fmt::format(kRow, stage, amount(timeline.finish - idle), amount(idle), amount(warm_up),
                        amount(drain), waiting);
  }
  return text;
}

}  // namespace tessera
