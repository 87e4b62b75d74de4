// SPDX-License-Identifier: Apache-2.0
// Draws the candidates of a search by time and memory, as SVG: search_svg() of
// tasks/search/output.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tasks/planner/text.h"
#include "tasks/search/output.h"

namespace tessera {
namespace {

// In pixels.
constexpr double kWidth = 760, kHeight = 420, kLeft = 64, kRight = 20, kTop = 40, kBottom = 50;
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr int kTicks = 5;

// A round number of at least this size: 1, 2 or 5 times a power of ten.
double round_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least) return factor * power;
  return 10.0 * power;
}

struct Extent {
  double from = 0.0, to = 1.0, step = 1.0;
};

Extent range_of(double from, double to) {
  const double step = round_step(std::max(to - from, 1e-9 * std::max(to, 1.0)) / kTicks);
  return {std::floor(from / step) * step, (std::floor(to / step) + 1.0) * step, step};
}

class Plot {
 public:
  Plot(Extent memory, Extent time, const char* unit, double factor)
      : memory_(memory), time_(time), unit_(unit), factor_(factor) {}

  double x(int64_t bytes) const {
    return at(static_cast<double>(bytes) / kGib, memory_, kLeft, kWidth - kRight);
  }
  double y(double seconds) const { return at(seconds * factor_, time_, kHeight - kBottom, kTop); }

  std::string axes() const {
    std::string svg;
    for (double value = memory_.from; value <= memory_.to * (1 + 1e-9); value += memory_.step) {
      const double place = at(value, memory_, kLeft, kWidth - kRight);
      svg += line(place, kTop, place, kHeight - kBottom, "grid");
      svg += words(place, kHeight - kBottom + 18, fmt::format("{:g}", rounded(value)), "middle");
    }
    for (double value = time_.from; value <= time_.to * (1 + 1e-9); value += time_.step) {
      const double place = at(value, time_, kHeight - kBottom, kTop);
      svg += line(kLeft, place, kWidth - kRight, place, "grid");
      svg += words(kLeft - 6, place + 4, fmt::format("{:g}", rounded(value)), "end");
    }
    svg += words((kLeft + kWidth - kRight) / 2, kHeight - 10, "memory of a device, GiB", "middle");
    return svg + words(8, 18, fmt::format("time of a step, {}", unit_), "start");
  }

  static std::string line(double x1, double y1, double x2, double y2, std::string_view kind) {
    return fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1,
        x2, y2, kind);
  }
  static std::string words(double x, double y, std::string_view text, std::string_view anchor) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                       anchor, text);
  }

 private:
  static double at(double value, const Extent& range, double from, double to) {
    return from + (value - range.from) / (range.to - range.from) * (to - from);
  }
  static double rounded(double value) { return std::abs(value) < 1e-9 ? 0.0 : value; }

  Extent memory_, time_;
  const char* unit_;
  double factor_;
};

std::string dot(double x, double y, double radius, std::string_view kind) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" class=\"{}\"/>\n", x, y,
                     radius, kind);
}

constexpr std::string_view kStyle =
    ".grid{stroke:#9a9aa8;stroke-width:.4}"
    ".limit{stroke:#b84a00;stroke-width:1.5;stroke-dasharray:6 4}"
    ".front{fill:none;stroke:#3b6fd4;stroke-width:1.5}.plan{fill:#9a9aa8}"
    ".best{fill:#3b6fd4}.recipe{fill:none;stroke:#b84a00;stroke-width:2}";

std::string legend(const SearchResult& result) {
  std::string svg = dot(230, 14, 3, "plan") + Plot::words(240, 18, "planned", "start") +
                    Plot::line(310, 14, 334, 14, "front") +
                    Plot::words(340, 18, "frontier", "start");
  if (result.best) svg += dot(414, 14, 5, "best") + Plot::words(425, 18, "best", "start");
  if (result.recipe.seconds > 0.0)
    svg += dot(480, 14, 5, "recipe") + Plot::words(491, 18, "recipe", "start");
  return svg + Plot::line(556, 14, 580, 14, "limit") +
         Plot::words(586, 18, "memory of a device", "start");
}

}  // namespace

std::string search_svg(const SearchResult& result, const SearchOptions& options) {
  double slowest = 0.0, fastest = std::numeric_limits<double>::infinity();
  int64_t most = arena_room(options.hardware);
  const auto widen = [&](double seconds, int64_t bytes) {
    slowest = std::max(slowest, seconds);
    fastest = std::min(fastest, seconds);
    most = std::max(most, bytes);
  };
  for (const PlannedCandidate& one : result.candidates)
    if (one.is_planned()) widen(one.seconds, one.bytes);
  if (result.recipe.seconds > 0.0) widen(result.recipe.seconds, result.recipe.bytes);
  if (slowest == 0.0) fastest = 0.0, slowest = 1.0;
  const bool is_short = slowest < 1.0;
  const double factor = is_short ? 1e3 : 1.0;
  const Plot plot(range_of(0.0, static_cast<double>(most) / kGib),
                  range_of(fastest * factor, slowest * factor), is_short ? "ms" : "s", factor);
  std::string svg = svg_opening(kWidth, kHeight, 12, kStyle) + plot.axes() + legend(result);
  const double limit = plot.x(arena_room(options.hardware));
  svg += Plot::line(limit, kTop, limit, kHeight - kBottom, "limit");
  for (const PlannedCandidate& one : result.candidates)
    if (one.is_planned()) svg += dot(plot.x(one.bytes), plot.y(one.seconds), 3, "plan");
  std::string path;
  for (const size_t i : result.frontier) {
    const PlannedCandidate& one = result.candidates[i];
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", plot.x(one.bytes),
                        plot.y(one.seconds));
  }
  svg += fmt::format("<polyline points=\"{}\" class=\"front\"/>\n", path);
  if (result.best) {
    const PlannedCandidate& best = result.candidates[*result.best];
    svg += dot(plot.x(best.bytes), plot.y(best.seconds), 5, "best");
  }
  if (result.recipe.seconds > 0.0)
    svg += dot(plot.x(result.recipe.bytes), plot.y(result.recipe.seconds), 5, "recipe");
  return svg + "</svg>\n";
}

}  // namespace tessera
