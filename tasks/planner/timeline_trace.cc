// SPDX-License-Identifier: Apache-2.0
// The timeline of a step as a trace for Perfetto: timeline_trace() and write_timeline_files() of
// tasks/planner/step_timeline.h.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/graph/op.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/trace_events.h"
#include "tasks/planner/step_timeline.h"

namespace tessera {
namespace {

constexpr size_t kMostSlices = 200'000;
// Beyond that, gaps and changes of memory below these shares of the step are not shown.
constexpr double kShortestGap = 1e-4;
constexpr int64_t kMemorySteps = 64;
constexpr int64_t kKernelThread = 1, kWithinThread = 2, kBetweenThread = 3;  // Threads.

double microseconds(double seconds) { return seconds * 1e6; }

// Slices of one thread; neighbours with the same key, and at most `gap` seconds between them,
// become one.
class SliceTrack {
 public:
  SliceTrack(std::string& events, TraceTrack ids, double gap)
      : events_(events), ids_(ids), gap_(gap) {}
  ~SliceTrack() { flush(); }
  SliceTrack& operator=(SliceTrack&&) = delete;  // Neither copied nor moved.

  // An empty key: a slice of its own.
  void add(std::string key, const TimeSpan& span, std::string_view name,
           const std::string& arguments) {
    if (span.end <= span.begin) return;
    if (!key.empty() && key == key_ && span.begin - span_.end <= gap_) {
      span_.end = span.end;
      ++count_;
      return;
    }
    flush();
    key_ = std::move(key);
    span_ = span;
    name_ = name;
    arguments_ = arguments;
    count_ = 1;
  }

 private:
  void flush() {
    if (count_ == 0) return;
    const std::string name = count_ == 1 ? name_ : fmt::format("{} ({} launches)", key_, count_);
    events_ += ",\n" + trace_slice(ids_, name, microseconds(span_.begin), microseconds(span_.end),
                                   count_ == 1 ? arguments_ : "");
    count_ = 0;
  }

  std::string& events_;
  TraceTrack ids_;
  double gap_;
  std::string key_, name_, arguments_;
  TimeSpan span_;
  size_t count_ = 0;
};

std::string arguments_of(const PricedLaunch& price, std::string_view task) {
  JsonLine line;
  if (!task.empty()) line.add("task", task);
  return line.add("phase", phase_name(price.phase))
      .add("layer", std::string_view(price.path))
      .add("line", std::string_view(price.source))
      .text();
}

// Adds the counter of memory. With many launches only larger changes are kept, and each new
// maximum, so that the peak is exact.
void add_memory(std::string& events, const StageTimeline& stage, TraceTrack ids, bool all) {
  int64_t peak = 0, highest = -1;
  for (const MemoryAt& memory : stage.memory) peak = std::max(peak, memory.bytes());
  MemoryAt last{-1, -1};
  for (size_t i = 0; i < stage.memory.size(); ++i) {
    const MemoryAt& now = stage.memory[i];
    if (now.used == last.used && now.gaps == last.gaps) continue;
    const int64_t change = std::abs(now.bytes() - last.bytes());
    if (!all && now.bytes() <= highest && change < peak / kMemorySteps) continue;
    last = now;
    highest = std::max(highest, now.bytes());
    events += ",\n" + trace_counter(ids, "memory", microseconds(stage.launches[i].reached),
                                    JsonLine().add("used", now.used).add("gaps", now.gaps).text());
  }
}

std::string_view task_of(const StageTimeline& stage, const TimedLaunch& launch) {
  return launch.task < 0 ? std::string_view() : stage.tasks[static_cast<size_t>(launch.task)];
}

void add_stage(std::string& events, const StepTimeline& timeline, const StageTimeline& stage,
               bool all) {
  const int64_t process = stage.stage + 1;
  const bool is_pipeline = timeline.stages.size() > 1;
  const auto name = [&](std::string_view what, int64_t thread, const std::string& text) {
    events += (events.empty() ? "" : ",\n") + trace_name(what, {process, thread}, text);
  };
  name("process_name", kKernelThread,
       is_pipeline ? fmt::format("stage {}", stage.stage) : timeline.title + " (predicted)");
  name("thread_name", kKernelThread, "kernels");
  name("thread_name", kWithinThread, "collectives within slices");
  name("thread_name", kBetweenThread, "collectives between slices");
  {
    const double gap = all ? 0.0 : kShortestGap * timeline.end;
    SliceTrack kernels(events, {process, kKernelThread}, gap);
    SliceTrack within(events, {process, kWithinThread}, gap),
        between(events, {process, kBetweenThread}, gap);
    kernels.add("", {0.0, timeline.input}, "input", "");
    for (const TimedLaunch& launch : stage.launches) {
      const PricedLaunch& price = stage.prices[launch.price];
      const std::string_view task = task_of(stage, launch);
      const std::string arguments = all ? arguments_of(price, task) : "";
      const std::string key = all ? "" : !task.empty() ? std::string(task) : price.path;
      if (launch.kind == LaunchKind::kWait) {
        if (launch.span.seconds() > gap)
          kernels.add("", launch.span, "wait for " + price.name, arguments);
      } else if (price.op->op_class == OpClass::kCollective) {
        (price.crosses_slices ? between : within).add(key, launch.span, price.name, arguments);
      } else {
        kernels.add(key, launch.span, price.name, arguments);
      }
    }
  }
  add_memory(events, stage, {process, kKernelThread}, all);
}

}  // namespace

std::string timeline_trace(const StepTimeline& timeline) {
  size_t launches = 0;
  for (const StageTimeline& stage : timeline.stages) launches += stage.launches.size();
  std::string events;
  for (const StageTimeline& stage : timeline.stages)
    add_stage(events, timeline, stage, launches <= kMostSlices);
  return trace_document(events);
}

void write_timeline_files(const std::filesystem::path& directory, const StepTimeline& timeline) {
  write_file_atomically(directory / "timeline.json", timeline_trace(timeline));
  write_file_atomically(directory / "timeline.svg", timeline_svg(timeline));
}

}  // namespace tessera
