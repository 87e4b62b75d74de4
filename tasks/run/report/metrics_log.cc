// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/report/metrics_log.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/run/log/run_log.h"

namespace tessera {
namespace {

constexpr size_t kBlock = size_t{1} << 20;
// A longer line is not one of ours, and is not kept in memory while its end is not there.
constexpr size_t kLongestLine = size_t{16} << 20;

double value_of(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.as_number();
}

RunEvent event_of(const Json& line) {
  RunEvent event{.name = line.at("event").as_string(), .step = line.at("step").as_integer()};
  if (const Json* reason = line.find("reason")) event.reason = reason->as_string();
  if (const Json* seconds = line.find("seconds")) event.seconds = seconds->as_number();
  return event;
}

// The values of one metric by step, thinned so that a run of any length takes bounded memory and
// draws in bounded time. Neighbours are merged as values arrive, so a longer run is never read
// again.

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

MetricsLog::MetricsLog(std::filesystem::path file) : file_(std::move(file)) {}

void MetricsLog::forget() { *this = MetricsLog(file_); }

bool MetricsLog::update() {
  struct stat now {};
  if (::stat(file_.c_str(), &now) != 0 || !S_ISREG(now.st_mode)) return false;
  if (now.st_ino != inode_ || now.st_size < offset_) forget();
  inode_ = now.st_ino;
  if (now.st_size == offset_) return false;
  const ByteFile file = ByteFile::open(file_);
  std::string block(kBlock, '\0');
  bool has_lines = false;
  while (const size_t read = file.read_some_at(offset_, std::as_writable_bytes(std::span(block)))) {
    offset_ += static_cast<int64_t>(read);
    rest_.append(block, 0, read);
    const size_t end = rest_.rfind('\n');
    if (end != std::string::npos) {
      add_lines(std::string_view(rest_).substr(0, end));
      rest_.erase(0, end + 1);
      has_lines = true;
    }
    if (rest_.size() > kLongestLine) {
      rest_.clear();
      ++damaged_lines_;
    }
  }
  return has_lines;
}

void MetricsLog::add_lines(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    try {
      if (end > 0) add_line(text.substr(0, end));
    } catch (const Error&) {
      ++damaged_lines_;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void MetricsLog::add_line(std::string_view line) {
  const Json json = parse_json(line, "metrics.jsonl");
  if (json.find("event") != nullptr) {
    const RunEvent event = event_of(json);
    step_ = std::max(step_, event.step);
    if (events_.size() == kMostEvents) events_.erase(events_.begin());
    events_.push_back(event);
    return;
  }
  const int64_t step = json.at("step").as_integer();
  std::map<std::string, double> values;
  for (const auto& [name, value] : json.as_object())
    if (name != "step" && (value.is_null() || value.is_number())) values[name] = value_of(value);
  step_ = std::max(step_, step);
  for (const auto& [name, value] : values) {
    // One chart for each layer would be too many: of these only the last value is shown.
    if (is_of_one_layer(name, values) || name.starts_with("parameter_norm/")) {
      of_layers_[name] = value;
    } else if (series_.contains(name) || series_.size() < kMostSeries) {
      series_[name].add(step, value);
      last_[name] = value;
    }
  }
}

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
