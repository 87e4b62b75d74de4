// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/parallel_plot.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/printable.h"
#include "tasks/sweep/table.h"

namespace tessera {
namespace {

constexpr double kHeight = 380.0;
constexpr double kTop = 48.0, kBottom = kHeight - 28.0;
constexpr double kMargin = 70.0;
constexpr double kSpacing = 190.0;     // Of the axes.
constexpr size_t kMostTicks = 6;       // Of an axis of numbers with more values.
constexpr double kLogarithmic = 20.0;  // From this ratio of the bounds on.
constexpr size_t kLongestLabel = 18, kLongestTitle = 24;

std::optional<double> number_of(const std::string& text) {
  try {
    size_t end = 0;
    const double value = std::stod(text, &end);
    if (end == text.size() && std::isfinite(value)) return value;
  } catch (const std::exception&) {
  }
  return std::nullopt;
}

struct Tick {
  double at = 0.0;  // 0 at the lower end of the axis, 1 at the upper.
  std::string label;
};

struct PlotAxis {
  std::string title;
  std::vector<std::optional<double>> places;  // Of each trial, as Tick::at.
  std::vector<Tick> ticks;
};

std::string label_of(const std::string& text, size_t longest = kLongestLabel) {
  return text.size() <= longest ? text : text.substr(0, longest - 1) + "…";
}

// Places of numbers, and ticks at all of them if they are few.
PlotAxis number_axis(std::string title, const std::vector<std::optional<double>>& values) {
  std::vector<double> distinct;
  for (const auto& value : values)
    if (value) distinct.push_back(*value);
  std::ranges::sort(distinct);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  PlotAxis axis{std::move(title), {}, {}};
  axis.places.resize(values.size());
  if (distinct.empty()) return axis;
  const double low = distinct.front(), high = distinct.back();
  const bool is_log = low > 0.0 && high / low >= kLogarithmic;
  const auto scaled = [is_log](double value) { return is_log ? std::log(value) : value; };
  const auto place = [&](double value) {
    return low == high ? 0.5 : (scaled(value) - scaled(low)) / (scaled(high) - scaled(low));
  };
  for (size_t i = 0; i < values.size(); ++i)
    if (const std::optional<double>& value = values[i]) axis.places[i] = place(*value);
  if (distinct.size() > kMostTicks) {
    distinct.clear();
    for (size_t i = 0; i < kMostTicks; ++i) {
      const double part = static_cast<double>(i) / static_cast<double>(kMostTicks - 1);
      const double value = scaled(low) + part * (scaled(high) - scaled(low));
      distinct.push_back(is_log ? std::exp(value) : value);
    }
  }
  for (const double value : distinct)
    axis.ticks.push_back({place(value), fmt::format("{:.4g}", value)});
  return axis;
}

// Texts have equal distances, in the order in which trials have them.
PlotAxis text_axis(std::string title, const std::vector<std::string>& values) {
  std::vector<std::string> distinct;
  for (const std::string& value : values)
    if (std::ranges::find(distinct, value) == distinct.end()) distinct.push_back(value);
  const auto place = [&](size_t index) {
    return distinct.size() == 1
               ? 0.5
               : static_cast<double>(index) / static_cast<double>(distinct.size() - 1);
  };
  PlotAxis axis{std::move(title), {}, {}};
  for (const std::string& value : values)
    axis.places.push_back(
        place(static_cast<size_t>(std::ranges::find(distinct, value) - distinct.begin())));
  for (size_t i = 0; i < distinct.size(); ++i)
    axis.ticks.push_back({place(i), label_of(distinct[i])});
  return axis;
}

std::vector<PlotAxis> axes_of(const SweepRecord& record) {
  std::vector<std::string> paths;
  if (!record.trials.empty())
    for (const TrialSetting& setting : record.trials[0].trial.settings)
      paths.push_back(setting.path);
  const std::vector<std::string> names = short_names(paths);
  std::vector<PlotAxis> axes;
  for (size_t i = 0; i < paths.size(); ++i) {
    std::vector<std::string> texts;
    std::vector<std::optional<double>> numbers;
    for (const TrialRecord& trial : record.trials) {
      texts.push_back(trial.trial.settings[i].value);
      numbers.push_back(number_of(texts.back()));
    }
    const bool is_numeric =
        std::ranges::all_of(numbers, [](const auto& n) { return n.has_value(); });
    axes.push_back(is_numeric ? number_axis(names[i], numbers) : text_axis(names[i], texts));
  }
  std::vector<std::optional<double>> finals;
  for (const TrialRecord& trial : record.trials)
    finals.push_back(trial.score ? std::optional(trial.score->final) : std::nullopt);
  axes.push_back(number_axis(record.metric.name, finals));
  return axes;
}

double x_of(size_t axis) { return kMargin + kSpacing * static_cast<double>(axis); }
double y_of(double place) { return kBottom - place * (kBottom - kTop); }

std::string axis_svg(const PlotAxis& axis, size_t index, bool is_last) {
  const double x = x_of(index);
  std::string svg = fmt::format(
      "<line class=\"axis\" x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\"/>"
      "<text class=\"title\" x=\"{0}\" y=\"{3}\">{4}</text>\n",
      x, kTop, kBottom, kTop - 20.0, markup_text(label_of(axis.title, kLongestTitle)));
  const double side = is_last ? 8.0 : -8.0;  // Where no line of a trial passes.
  for (const Tick& tick : axis.ticks)
    svg += fmt::format(
        "<line class=\"tick\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>"
        "<text class=\"label\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
        x, y_of(tick.at), x + side / 2.0, y_of(tick.at), x + side, y_of(tick.at) + 4.0,
        is_last ? "start" : "end", markup_text(tick.label));
  return svg;
}

// 0 for the worst complete trial, 1 for the best.
double quality(const PlotAxis& metric, size_t trial, SweepGoal goal) {
  const double place = metric.places[trial].value_or(0.0);
  return goal == SweepGoal::kMin ? 1.0 - place : place;
}

std::string trial_svg(const SweepRecord& record, const std::vector<PlotAxis>& axes, size_t index) {
  const TrialRecord& trial = record.trials[index];
  std::string points;
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (const auto place = axes[axis].places[index])
      points += fmt::format("{}{},{:.1f}", points.empty() ? "" : " ", x_of(axis), y_of(*place));
  const bool has_value = trial.score.has_value();
  const std::string style =
      has_value
          ? fmt::format(" style=\"stroke:color-mix(in oklab,var(--best) {:.0f}%,var(--worst))\"",
                        100.0 * quality(axes.back(), index, record.metric.goal))
          : "";
  const std::string value = has_value ? metric_text(trial.score->final) : "no value";
  return fmt::format(
      "<polyline class=\"trial{}\" points=\"{}\"{}><title>trial {}: {}, {} {} "
      "({})</title></polyline>\n",
      has_value ? "" : " open", points, style, trial.trial.number, markup_text(trial.trial.text()),
      markup_text(record.metric.name), value, enum_name(trial.state));
}

}  // namespace

std::string parallel_plot(const SweepRecord& record) {
  const std::vector<PlotAxis> axes = axes_of(record);
  const double width = x_of(axes.size() - 1) + kMargin + 20.0;
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" role=\"img\" aria-label=\"Settings and {2} of "
      "each "
      "trial\">\n",
      width, kHeight, markup_text(record.metric.name));
  // The best ones are drawn last, above the others.
  std::vector<size_t> order;
  for (size_t i = 0; i < record.trials.size(); ++i) order.push_back(i);
  const auto rank = [&](size_t i) {
    return axes.back().places[i] ? quality(axes.back(), i, record.metric.goal) : -1.0;
  };
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return rank(a) < rank(b); });
  for (const size_t i : order) svg += trial_svg(record, axes, i);
  for (size_t axis = 0; axis < axes.size(); ++axis)
    svg += axis_svg(axes[axis], axis, axis + 1 == axes.size());
  return svg + "</svg>\n";
}

}  // namespace tessera
