// SPDX-License-Identifier: Apache-2.0
#include "core/passes/pipeline/drawing.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "core/base/printable.h"

namespace tessera {
namespace {

// In pixels.
constexpr double kLeft = 62, kTop = 50, kTimeWidth = 820, kRight = 14, kBottom = 26;
constexpr double kRowStep = 28, kRowHeight = 22, kDigitWidth = 6;

struct WorkStyle {
  std::string_view name;
  int red, green, blue;  // Dark enough for white numbers.
};
// In the order of PipelineWork.
constexpr std::array<WorkStyle, 4> kStyles = {{{"forward", 59, 111, 212},
                                               {"backward", 184, 92, 0},
                                               {"backward of input", 178, 58, 94},
                                               {"backward of weight", 47, 125, 79}}};

std::string colour(PipelineWork work, int64_t chunk) {
  const WorkStyle& style = kStyles[static_cast<size_t>(work)];
  const double light = std::max(1.0 - 0.22 * static_cast<double>(chunk), 0.35);
  const auto shade = [light](int part) { return static_cast<int>(part * light); };
  return fmt::format("#{:02x}{:02x}{:02x}", shade(style.red), shade(style.green),
                     shade(style.blue));
}

std::string box(double x, double y, double width, double height, std::string_view fill) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\"/>\n", x, y,
      width, height, fill);
}

// Blank: what the tasks leave of it is idle time.
std::string row_outline(double x, double y, double width) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"none\" "
      "stroke=\"#9a9aa8\" stroke-width=\"0.5\"/>\n",
      x, y, width, kRowHeight);
}

enum class Anchor { kStart, kEnd };

// Text on the page. Its class lets a dark page change its colour.
std::string words(double x, double y, std::string_view text, Anchor anchor = Anchor::kStart) {
  return fmt::format(
      "<text x=\"{:.2f}\" y=\"{:.0f}\" class=\"page\" fill=\"#33333b\"{}>{}</text>\n", x, y,
      anchor == Anchor::kEnd ? " text-anchor=\"end\"" : "", text);
}

// White text in a box.
std::string number_text(double middle, double y, std::string_view number) {
  return fmt::format(
      "<text x=\"{:.2f}\" y=\"{:.0f}\" font-size=\"10\" fill=\"#ffffff\" "
      "text-anchor=\"middle\">{}</text>\n",
      middle, y, number);
}

double row_top(int64_t stage) { return kTop + kRowStep * static_cast<double>(stage); }

// The drawing has no background of its own: its text is dark or light as the page requires.
std::string opening(double height) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-size=\"11\" "
      "font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n"
      "<style>@media (prefers-color-scheme:dark){{.page{{fill:#d8d8e0}}}}</style>\n",
      kLeft + kTimeWidth + kRight, height);
}

std::string legend(const PipelineTable& table) {
  std::string svg = words(kLeft, 16, markup_text(table.name));
  double x = kLeft;
  for (size_t work = 0; work < kStyles.size(); ++work) {
    const auto is_used = [work](const PipelineTask& task) {
      return task.work == static_cast<PipelineWork>(work);
    };
    if (std::none_of(table.tasks.begin(), table.tasks.end(), is_used)) continue;
    svg += box(x, 26, 11, 11, colour(static_cast<PipelineWork>(work), 0));
    svg += words(x + 16, 36, kStyles[work].name);
    x += 34 + 6.6 * static_cast<double>(kStyles[work].name.size());
  }
  return table.chunks == 1 ? svg : svg + words(x, 36, "darker: later chunks");
}

std::string task_boxes(const PipelineTimeline& timeline, double scale) {
  std::string svg;
  for (const auto& [task, start, end] : timeline.tasks) {
    const double left = kLeft + start * scale;
    const double width = std::max((end - start) * scale - 1, 0.0);  // A gap of one pixel.
    svg += box(left, row_top(task.stage), width, kRowHeight, colour(task.work, task.chunk));
    const std::string number = std::to_string(task.microbatch);
    if (width >= 2 + kDigitWidth * static_cast<double>(number.size()))
      svg += number_text(left + width / 2, row_top(task.stage) + 15, number);
  }
  return svg;
}

}  // namespace

std::string pipeline_svg(const PipelineTimeline& timeline, double shown_time) {
  const PipelineTable& table = timeline.table;
  const double shown = std::max(shown_time > 0.0 ? shown_time : timeline.finish, 1e-9);
  const double scale = kTimeWidth / shown;
  const double bottom = row_top(table.stages);
  const double end = kLeft + timeline.finish * scale;
  std::string svg = opening(bottom + kBottom) + legend(table);
  for (int64_t stage = 0; stage < table.stages; ++stage) {
    svg += words(kLeft - 8, row_top(stage) + 15, fmt::format("stage {}", stage), Anchor::kEnd);
    svg += row_outline(kLeft, row_top(stage), end - kLeft);
  }
  svg += task_boxes(timeline, scale);
  svg += words(kLeft, bottom + 12, "time 0");
  svg +=
      words(end, bottom + 12,
            fmt::format("{:g}, idle {:.0f} %", timeline.finish, 100 * timeline.bubble_fraction()),
            Anchor::kEnd);
  return svg + "</svg>\n";
}

}  // namespace tessera
