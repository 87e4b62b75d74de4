// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/step_timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/printable.h"
#include "core/graph/op.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/trace_events.h"
#include "tasks/planner/text.h"

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
                                    json_object({{"used", now.used}, {"gaps", now.gaps}}));
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

// Sizes of the drawing, in pixels.
constexpr double kLeft = 96, kTop = 58, kTimeWidth = 820, kRight = 20, kBottom = 30;
constexpr double kLaneHeight = 26, kLaneGap = 4, kMemoryHeight = 44, kStageGap = 16;
constexpr size_t kMostDrawnStages = 8;
constexpr size_t kBins = 820, kBinsOfMany = 410;  // For one or two stages, and for more.

struct WorkColour {
  std::string_view name, light, dark;
};
// What a stream does.
enum Work : size_t { kForward, kRecomputed, kBackward, kUpdate, kInput, kWithin, kBetween, kWorks };
constexpr std::array<WorkColour, kWorks> kColours = {{{"forward", "#3b6fd4", "#6f9bf0"},
                                                      {"recomputed", "#7a5fc0", "#a68cf0"},
                                                      {"backward", "#b85c00", "#ee9a4a"},
                                                      {"update", "#2f7d4f", "#5cc088"},
                                                      {"input", "#8a8a00", "#cccc55"},
                                                      {"collectives", "#b23a5e", "#ee7a9c"},
                                                      {"between slices", "#6e2038", "#ffb3c8"}}};

// The share of each kind of work in each of the equal parts of the step.
class WorkLane {
 public:
  WorkLane(size_t bins, double end) : seconds_(bins), width_(end / static_cast<double>(bins)) {}

  void add(Work work, const TimeSpan& span) {
    if (span.end <= span.begin || width_ <= 0.0) return;
    const auto last = seconds_.size() - 1;
    const auto bin_of = [&](double time) {
      return std::min(static_cast<size_t>(time / width_), last);
    };
    for (size_t bin = bin_of(span.begin); bin <= bin_of(span.end); ++bin) {
      const double left = width_ * static_cast<double>(bin);
      const double part = std::min(span.end, left + width_) - std::max(span.begin, left);
      if (part > 0.0) seconds_[bin][work] += part;
    }
  }

  // A path for each kind of work: bars that are stacked, as high as their share.
  std::string paths(double top) const {
    std::string svg;
    const double step = kTimeWidth / static_cast<double>(seconds_.size());
    for (size_t work = 0; work < kWorks; ++work) {
      std::string path;
      for (size_t bin = 0; bin < seconds_.size();) {
        const auto [low, high] = bar(bin, work);
        size_t next = bin + 1;
        while (next < seconds_.size() && bar(next, work) == std::pair(low, high)) ++next;
        if (high > low)
          path += fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h-{:.1f}z",
                              kLeft + step * static_cast<double>(bin), top + kLaneHeight - low,
                              step * static_cast<double>(next - bin), low - high,
                              step * static_cast<double>(next - bin));
        bin = next;
      }
      if (!path.empty()) svg += fmt::format("<path class=\"w{}\" d=\"{}\"/>\n", work, path);
    }
    return svg;
  }

 private:
  // Lower and upper end of a bar, in steps of a fifth of a pixel.
  std::pair<double, double> bar(size_t bin, size_t work) const {
    double below = 0.0;
    for (size_t i = 0; i < work; ++i) below += seconds_[bin][i];
    const auto height = [&](double seconds) {
      return std::round(5.0 * std::min(seconds / width_, 1.0) * kLaneHeight) / 5.0;
    };
    return {height(below), height(below + seconds_[bin][work])};
  }

  std::vector<std::array<double, kWorks>> seconds_;
  double width_;
};

Work work_of(const PricedLaunch& price) {
  if (price.op->op_class == OpClass::kCollective) return price.crosses_slices ? kBetween : kWithin;
  if (price.is_recomputed) return kRecomputed;
  return price.phase == Phase::kForward    ? kForward
         : price.phase == Phase::kBackward ? kBackward
                                           : kUpdate;
}

enum class Anchor { kStart, kEnd };

std::string words(double x, double y, std::string_view text, Anchor anchor = Anchor::kStart) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y,
                     anchor == Anchor::kEnd ? " text-anchor=\"end\"" : "", markup_text(text));
}

std::string frame(double top, double height) {
  return fmt::format("<rect class=\"frame\" x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/>\n",
                     kLeft, top, kTimeWidth, height);
}

// The memory at each moment as a line with a filled area; `most` is at the top.
std::string memory_path(std::string_view style, const StageTimeline& stage,
                        int64_t (*bytes)(const MemoryAt&), double end, int64_t most, double top) {
  std::vector<double> highest(static_cast<size_t>(kTimeWidth), -1.0);
  for (size_t i = 0; i < stage.memory.size(); ++i) {
    const auto x = static_cast<size_t>(stage.launches[i].reached / end * (kTimeWidth - 1));
    double& here = highest[std::min(x, highest.size() - 1)];
    here = std::max(here, static_cast<double>(bytes(stage.memory[i])));
  }
  const double bottom = top + kMemoryHeight;
  std::string path = fmt::format("M{} {:.1f}", kLeft, bottom);
  double last = highest.empty() ? 0.0 : std::max(highest[0], 0.0);
  for (size_t x = 0; x < highest.size(); ++x) {
    if (highest[x] >= 0.0) last = highest[x];
    path += fmt::format(
        "L{:.0f} {:.1f}", kLeft + static_cast<double>(x),
        bottom - last / static_cast<double>(std::max<int64_t>(most, 1)) * (kMemoryHeight - 2));
  }
  return fmt::format("<path class=\"{}\" d=\"{}V{:.1f}z\"/>\n", style, path, bottom);
}

// The used memory in front of what the arena must have, which includes gaps between blocks.
std::string memory_paths(const StageTimeline& stage, double end, int64_t most, double top) {
  const auto with_gaps = [](const MemoryAt& memory) { return memory.bytes(); };
  const auto used = [](const MemoryAt& memory) { return memory.used; };
  return memory_path("gaps", stage, with_gaps, end, most, top) +
         memory_path("memory", stage, used, end, most, top);
}

std::string opening(double height) {
  std::string style =
      ".frame{fill:none;stroke:#9a9aa8;stroke-width:.5}"
      ".memory{fill:#8a94a6;fill-opacity:.45;stroke:#5a6478;stroke-width:.7}"
      ".gaps{fill:#8a94a6;fill-opacity:.15}";
  std::string dark = ".memory{stroke:#b8c2d6}";
  for (size_t work = 0; work < kWorks; ++work) {
    style += fmt::format(".w{}{{fill:{}}}", work, kColours[work].light);
    dark += fmt::format(".w{}{{fill:{}}}", work, kColours[work].dark);
  }
  return svg_opening(kLeft + kTimeWidth + kRight, height, 11, style, dark);
}

std::string legend(const StepTimeline& timeline) {
  std::string svg =
      words(kLeft, 16,
            fmt::format("A step on {}: {:.3f} ms, predicted", timeline.title, timeline.end * 1e3));
  double x = kLeft;
  for (size_t work = 0; work < kWorks; ++work) {
    const bool is_used = (work == kInput && timeline.input > 0.0) ||
                         std::ranges::any_of(timeline.stages, [&](const StageTimeline& stage) {
                           return std::ranges::any_of(stage.prices, [&](const PricedLaunch& price) {
                             return price.count > 0 && work_of(price) == work;
                           });
                         });
    if (!is_used) continue;
    svg += fmt::format("<rect class=\"w{}\" x=\"{:.1f}\" y=\"28\" width=\"11\" height=\"11\"/>\n",
                       work, x);
    svg += words(x + 16, 38, kColours[work].name);
    x += 34 + 6.6 * static_cast<double>(kColours[work].name.size());
  }
  return svg;
}

// The stages that are drawn.
std::vector<const StageTimeline*> shown_stages(const StepTimeline& timeline) {
  std::vector<const StageTimeline*> shown;
  const size_t count = timeline.stages.size(), half = kMostDrawnStages / 2;
  for (size_t i = 0; i < count; ++i)
    if (count <= kMostDrawnStages || i < half || i >= count - half)
      shown.push_back(&timeline.stages[i]);
  return shown;
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

std::string timeline_svg(const StepTimeline& timeline) {
  const std::vector<const StageTimeline*> stages = shown_stages(timeline);
  const size_t bins = stages.size() <= 2 ? kBins : kBinsOfMany;
  const bool is_pipeline = timeline.stages.size() > 1;
  int64_t most = 0;
  for (const StageTimeline* stage : stages)
    for (const MemoryAt& memory : stage->memory) most = std::max(most, memory.bytes());
  std::string body = legend(timeline);
  double top = kTop;
  for (const StageTimeline* stage : stages) {
    WorkLane kernels(bins, timeline.end), links(bins, timeline.end);
    kernels.add(kInput, {0.0, timeline.input});
    bool communicates = false;
    for (const TimedLaunch& launch : stage->launches) {
      if (launch.kind == LaunchKind::kWait) continue;
      const Work work = work_of(stage->prices[launch.price]);
      const bool is_link = work == kWithin || work == kBetween;
      communicates = communicates || is_link;
      (is_link ? links : kernels).add(work, launch.span);
    }
    if (is_pipeline) body += words(8, top + 17, fmt::format("stage {}", stage->stage));
    const auto label = [&](double height, std::string_view text) {
      body += words(kLeft - 6, top + height / 2 + 4, text, Anchor::kEnd);
    };
    label(kLaneHeight, is_pipeline ? "" : "kernels");
    body += frame(top, kLaneHeight) + kernels.paths(top);
    top += kLaneHeight + kLaneGap;
    if (communicates) {
      label(kLaneHeight, is_pipeline ? "links" : "collectives");
      body += frame(top, kLaneHeight) + links.paths(top);
      top += kLaneHeight + kLaneGap;
    }
    label(kMemoryHeight, "memory");
    body += memory_paths(*stage, timeline.end, most, top) + frame(top, kMemoryHeight);
    top += kMemoryHeight + kStageGap;
  }
  body += words(kLeft, top, "0") +
          words(kLeft + kTimeWidth, top,
                fmt::format("{:.3f} ms; memory to {}", timeline.end * 1e3, size_text(most)),
                Anchor::kEnd);
  if (stages.size() < timeline.stages.size())
    body += words(kLeft + 120, top,
                  fmt::format("{} stages in the middle are left out",
                              timeline.stages.size() - stages.size()));
  return opening(top + kBottom) + body + "</svg>\n";
}

std::vector<MemoryAt> memory_curve(const StepProgram& step) {
  const auto launches = static_cast<int64_t>(step.launches.size());
  const auto begin_of = [](const PackedBlock* block) { return std::max<int64_t>(block->first, 0); };
  const auto is_used = [&](const PackedBlock& block) {
    return block.first <= block.last && begin_of(&block) < launches;
  };
  std::vector<int64_t> freed(step.launches.size() + 1, 0);  // Bytes freed before each launch.
  std::vector<size_t> begins(step.launches.size() + 1, 0);  // Positions in `blocks`.
  for (const PackedBlock& block : step.blocks) {
    if (!is_used(block)) continue;
    ++begins[static_cast<size_t>(begin_of(&block)) + 1];
    if (block.last + 1 < launches)
      freed[static_cast<size_t>(block.last + 1)] += aligned(block.bytes);
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<const PackedBlock*> blocks(begins.back());  // By their first launch.
  for (const PackedBlock& block : step.blocks)
    if (is_used(block)) blocks[begins[static_cast<size_t>(begin_of(&block))]++] = &block;

  std::vector<MemoryAt> curve;
  curve.reserve(step.launches.size());
  std::priority_queue<std::pair<int64_t, int64_t>> ends;  // A block's end, its last launch.
  int64_t used = 0;
  size_t next = 0;
  for (int64_t launch = 0; launch < launches; ++launch) {
    used -= freed[static_cast<size_t>(launch)];
    for (; next < blocks.size() && begin_of(blocks[next]) == launch; ++next) {
      used += aligned(blocks[next]->bytes);
      ends.emplace(blocks[next]->offset + aligned(blocks[next]->bytes), blocks[next]->last);
    }
    while (!ends.empty() && ends.top().second < launch) ends.pop();
    const int64_t end = ends.empty() ? 0 : ends.top().first;
    curve.push_back({step.persistent_bytes + used, end - used});
  }
  return curve;
}

std::vector<size_t> fullest_launches(const std::vector<MemoryAt>& curve, size_t most) {
  const size_t step = std::max<size_t>(1, (curve.size() + most - 1) / most);
  std::vector<size_t> launches;
  for (size_t begin = 0; begin < curve.size(); begin += step) {
    const auto first = curve.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto end = first + static_cast<std::ptrdiff_t>(std::min(step, curve.size() - begin));
    launches.push_back(static_cast<size_t>(
        std::ranges::max_element(
            first, end, {}, [](const MemoryAt& at) { return std::pair(at.bytes(), at.used); }) -
        curve.begin()));
  }
  return launches;
}

}  // namespace tessera
