// SPDX-License-Identifier: Apache-2.0
// Draws the timeline of a step as SVG: timeline_svg() of tasks/planner/step_timeline.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/printable.h"
#include "core/graph/op.h"
#include "tasks/planner/step_timeline.h"
#include "tasks/planner/text.h"

namespace tessera {
namespace {

// In pixels.
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

}  // namespace tessera
