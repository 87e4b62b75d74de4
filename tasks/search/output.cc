// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/output.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/printable.h"
#include "core/io/json.h"
#include "tasks/planner/text.h"

namespace tessera {
namespace {

constexpr size_t kMostRefusals = 8;  // Groups that are printed.

std::string without_digits(const std::string& text) {
  std::string result;
  for (const char c : text)
    if (c < '0' || c > '9') {
      result += c;
    } else if (result.empty() || result.back() != '#') {
      result += '#';
    }
  return result;
}

std::string seconds_text(double seconds) {
  return seconds < 1.0 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

// A line with time, memory and MFU, and a candidate on the next lines if it is too long.
std::string row(std::string_view head, const PlannedStep& step, const std::string& what) {
  const std::string line =
      fmt::format("  {:<8}{:>11} {:>12} {:>6.1f} %   ", head, seconds_text(step.seconds),
                  size_text(step.bytes), 100.0 * step.mfu);
  if (line.size() + what.size() <= kPlanColumns) return line + what + "\n";
  return line + wrapped(what, line.size()).substr(line.size());
}

std::string hours_text(const SearchOptions& options, int64_t devices, double seconds) {
  const double amount = 1000.0 * score(SearchGoal::kCost, options.hardware, devices, seconds, 0);
  return options.hardware.price_per_hour
             ? fmt::format("{:.4g} (in the currency of price_per_hour)", amount)
             : fmt::format("{:.4g} device hours", amount);
}

std::string heading(const SearchResult& result, const SearchOptions& options,
                    const std::string& experiment) {
  std::vector<int64_t> devices = options.space.devices;
  if (devices.empty()) devices = {result.recipe.devices};
  const std::string slice =
      options.space.slice ? fmt::format(", fast links among {}", *options.space.slice) : "";
  return fmt::format("search of {} for {}: {} × {} of {}{}\n", experiment, enum_name(options.goal),
                     fmt::join(devices, " or "), options.hardware.title,
                     size_text(options.hardware.memory.bytes), slice);
}

std::string recipe_row(const SearchResult& result, const SearchOptions& options) {
  const RecipePlan& recipe = result.recipe;
  if (!recipe.refusal.empty()) return wrapped("recipe: " + recipe.refusal, 2);
  std::string text = row("recipe", recipe, recipe.text);
  if (recipe.bytes > arena_room(options.hardware))
    text += wrapped(fmt::format("which needs {} of {}", size_text(recipe.bytes),
                                size_text(arena_room(options.hardware))),
                    10);
  return text;
}

std::string comparison_text(const SearchResult& result, const SearchOptions& options) {
  const PlannedCandidate& best = result.best_candidate();
  const RecipePlan& recipe = result.recipe;
  std::string text =
      fmt::format("  a thousand steps: {}\n", hours_text(options, best.devices(), best.seconds));
  if (!recipe.refusal.empty() || recipe.seconds <= 0.0) return text;
  const double faster = recipe.seconds / best.seconds;
  const double memory = static_cast<double>(best.bytes) / static_cast<double>(recipe.bytes);
  if (best.devices() == recipe.devices)
    return fmt::format("  the best takes {:.3f} of the recipe's time and {:.3f} of its memory\n",
                       1.0 / faster, memory) +
           text;
  return fmt::format(
             "  the best is {:.3f} times as fast as the recipe, on {} devices in place of {}\n",
             faster, best.devices(), recipe.devices) +
         text;
}

std::string counts_text(const SearchResult& result, const SearchOptions& options) {
  const SearchCounts counts = counts_of(result, options);
  std::string text = "\n" + wrapped(fmt::format("{} of {} combinations planned in {:.1f} s; {} of "
                                                "them need too much memory; {} refused",
                                                counts.planned, result.combinations, result.elapsed,
                                                counts.too_large, counts.refused),
                                    2);
  if (result.smaller_state_saves > 0 && counts.too_large > 0)
    text += wrapped(
        fmt::format("Optimizer state in bf16 would save {} of the best. It changes what a run "
                    "computes, so it is searched only with --search_state_dtype.",
                    size_text(result.smaller_state_saves)),
        2);
  if (!result.is_complete)
    text += wrapped(fmt::format("The search ended after {:.0f} s, while candidates with better "
                                "neighbours were left. --search_seconds=N gives it more time.",
                                options.seconds),
                    2);
  return text;
}

// A line for each reason, with the count before it.
std::string reasons_text(std::string_view heading, const std::vector<LeftOut>& groups) {
  if (groups.empty()) return "";
  std::string text = fmt::format("\n{}\n", heading);
  for (size_t i = 0; i < std::min(groups.size(), kMostRefusals); ++i) {
    const std::string count = fmt::format("  {:>6} × ", groups[i].count);
    text += count + wrapped(groups[i].reason, 11).substr(11);
  }
  if (groups.size() > kMostRefusals)
    text += fmt::format("  and {} other reasons\n", groups.size() - kMostRefusals);
  return text;
}

std::string refusals_text(const SearchResult& result) {
  return reasons_text("layouts that are excluded", result.exclusions.groups()) +
         reasons_text("refused", refusal_groups(result));
}

JsonLine step_json(const std::string& what, int64_t devices, const PlannedStep& step) {
  return JsonLine()
      .add("candidate", what)
      .add("devices", devices)
      .add("step_seconds", step.seconds)
      .add("bytes", step.bytes)
      .add("mfu", step.mfu);
}

std::string candidate_json(const PlannedCandidate& one, SettingStyle style) {
  return step_json(one.candidate.text(), one.devices(), one)
      .add_raw("set", json_list(settings_of(one.candidate, style), json_quoted))
      .text();
}

template <typename Indices>
std::string list_json(const SearchResult& result, const Indices& indices, SettingStyle style) {
  const auto text = [&](size_t i) { return candidate_json(result.candidates[i], style); };
  return json_list(indices, text, ",\n  ");
}

// Sizes of the drawing, in pixels.
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

SearchCounts counts_of(const SearchResult& result, const SearchOptions& options) {
  SearchCounts counts;
  for (const PlannedCandidate& one : result.candidates) {
    ++(one.is_planned() ? counts.planned : counts.refused);
    if (one.is_planned() && one.bytes > arena_room(options.hardware)) ++counts.too_large;
  }
  return counts;
}

std::vector<LeftOut> refusal_groups(const SearchResult& result) {
  std::map<std::string, LeftOut> groups;
  const auto add = [&groups](const std::string& text, int64_t count) {
    const auto [group, added] = groups.try_emplace(without_digits(text), LeftOut{0, text});
    group->second.count += count;
  };
  for (const PlannedCandidate& one : result.candidates)
    if (!one.is_planned()) add(one.refusal, 1);
  std::vector<LeftOut> list;
  for (auto& [unused, group] : groups) list.push_back(std::move(group));
  std::ranges::stable_sort(list, std::greater<>(), &LeftOut::count);
  return list;
}

std::string nothing_fits(const SearchResult& result, const SearchOptions& options) {
  const PlannedCandidate* least = nullptr;
  for (const PlannedCandidate& one : result.candidates)
    if (one.is_planned() && (least == nullptr || one.bytes < least->bytes)) least = &one;
  const std::string memory = size_text(arena_room(options.hardware));
  const std::string when =
      result.is_complete
          ? ""
          : fmt::format(" among those looked at in {:.0f} s (--search_seconds)", options.seconds);
  if (least == nullptr) {
    const std::vector<LeftOut> groups = refusal_groups(result);
    return fmt::format("--search: no candidate can be planned{}",
                       groups.empty() ? "" : "; most often: " + groups.front().reason);
  }
  return fmt::format(
      "--search: no candidate{} fits {} of {}; the nearest, {} on {} devices, needs {}; give more "
      "devices (--search_devices) or a smaller batch",
      when, memory, options.hardware.title, least->candidate.text(), least->devices(),
      size_text(least->bytes));
}

std::string search_text(const SearchResult& result, const SearchOptions& options,
                        SettingStyle style, const SearchTexts& texts) {
  std::string text = heading(result, options, texts.experiment);
  text += fmt::format("\n  {:<8}{:>11} {:>12} {:>8}\n", "", "step", "memory", "MFU");
  text += recipe_row(result, options);
  if (result.best) {
    const PlannedCandidate& best = result.candidates[*result.best];
    text += row("best", best, best.candidate.text());
    text += comparison_text(result, options);
  }
  if (result.best_of_devices.size() > 1) {
    text += "\nthe best for each number of devices\n";
    for (const size_t i : result.best_of_devices) {
      const PlannedCandidate& one = result.candidates[i];
      text += row(std::to_string(one.devices()), one, one.candidate.text());
    }
  }
  text += "\ntime against memory, of what was planned\n";
  for (const size_t i : result.frontier) {
    const PlannedCandidate& one = result.candidates[i];
    text += row(i == result.best ? "best" : "", one, one.candidate.text());
  }
  text += refusals_text(result) + counts_text(result, options);
  if (!result.best) return text;
  text += "\nthe best as a command\n  " + texts.command;
  if (!texts.set_file.empty()) {
    text += " --set_file=" + texts.set_file;
  } else {
    for (const std::string& set : settings_of(result.candidates[*result.best].candidate, style))
      text += " --set " + shell_quoted(set);
  }
  return text + "\n";
}

std::string search_json(const SearchResult& result, const SearchOptions& options,
                        SettingStyle style) {
  const SearchCounts counts = counts_of(result, options);
  const RecipePlan& recipe = result.recipe;
  const auto refusal_json = [](const LeftOut& group) {
    return json_object({{"count", group.count}, {"example", group.reason}});
  };
  const auto excluded_json = [](const LeftOut& group) {
    return json_object({{"layouts", group.count}, {"reason", group.reason}});
  };
  JsonLine json;
  json.add("goal", enum_name(options.goal))
      .add("hardware", options.hardware.name)
      .add("memory_bytes", options.hardware.memory.bytes)
      .add_raw("recipe",
               step_json(recipe.text, recipe.devices, recipe).add("refusal", recipe.refusal).text())
      .add_raw("best",
               result.best ? candidate_json(result.candidates[*result.best], style) : "null")
      .add_raw("best_of_devices", list_json(result, result.best_of_devices, style))
      .add_raw("frontier", list_json(result, result.frontier, style))
      .add_raw("excluded", json_list(result.exclusions.groups(), excluded_json))
      .add_raw("refused", json_list(refusal_groups(result), refusal_json))
      .add_raw("counts", json_object({{"combinations", result.combinations},
                                      {"planned", counts.planned},
                                      {"refused", counts.refused},
                                      {"too_large", counts.too_large}}))
      .add_raw("complete", result.is_complete ? "true" : "false")
      .add("seconds", result.elapsed);
  return json.text();
}

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
