// SPDX-License-Identifier: Apache-2.0
// The values of one metric by step, thinned so that a run of any length takes bounded memory and
// draws in bounded time. Neighbours are merged as values arrive, so a longer run is never read
// again.
#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "core/io/json.h"
#include "tasks/run/report/metrics_log.h"

namespace tessera {
namespace {

void merge(SeriesPoint& into, const SeriesPoint& next) {
  into.last = next.last;
  if (next.count == 0) return;
  into.low = into.count == 0 ? next.low : std::min(into.low, next.low);
  into.high = into.count == 0 ? next.high : std::max(into.high, next.high);
  into.sum += next.sum;
  into.count += next.count;
}

std::string list_of(const std::vector<SeriesPoint>& points,
                    const std::function<double(const SeriesPoint&)>& value) {
  return json_list(
      points,
      [&](const SeriesPoint& point) {
        return point.count == 0 ? "null" : fmt::format("{:.6g}", value(point));
      },
      ",");
}

}  // namespace

void Series::add(int64_t step, double value) {
  if (!points_.empty() && step < points_.back().last) return;
  SeriesPoint point{.first = step, .last = step};
  if (std::isfinite(value)) {
    point.sum = point.low = point.high = value;
    point.count = 1;
  }
  if (!points_.empty() && values_in_last_ < values_per_point_) {
    merge(points_.back(), point);
    ++values_in_last_;
    return;
  }
  if (points_.size() == kMostPoints) {
    for (size_t i = 0; i < kMostPoints / 2; ++i) {
      points_[i] = points_[2 * i];
      merge(points_[i], points_[2 * i + 1]);
    }
    points_.resize(kMostPoints / 2);
    values_per_point_ *= 2;
  }
  points_.push_back(point);
  values_in_last_ = 1;
}

std::string Series::json() const {
  const auto middle = [](const SeriesPoint& point) { return (point.first + point.last) / 2; };
  const std::string steps = json_list(points_, middle, ",");
  std::string text = fmt::format(R"({{"s": {}, "m": {})", steps, list_of(points_, [](auto& point) {
                                   return point.sum / static_cast<double>(point.count);
                                 }));
  if (values_per_point_ > 1)
    text += fmt::format(R"(, "l": {}, "h": {})",
                        list_of(points_, [](auto& point) { return point.low; }),
                        list_of(points_, [](auto& point) { return point.high; }));
  return text + "}";
}

}  // namespace tessera
