// SPDX-License-Identifier: Apache-2.0
// Reads metrics.jsonl as it grows (docs/formats.md): the values of each metric by step, the last of
// them, and the events of the run. Lines that are not complete JSON, which a machine that stopped
// may leave, are counted and ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Consecutive values that are drawn as one point.
struct SeriesPoint {
  int64_t first = 0, last = 0;  // Steps.
  double sum = 0.0;             // Sum of the finite values, `count` of them.
  double low = 0.0, high = 0.0;
  int64_t count = 0;
};

// The values of one metric by step, thinned so that a run of any length takes bounded memory.
class Series {
 public:
  // A screen is not wider; between half as many and as many are kept.
  static constexpr size_t kMostPoints = 1024;

  // Steps must not decrease: a value of an earlier step than the last is ignored. A value that is
  // not finite takes part in no mean; a point of such values alone is a gap.
  void add(int64_t step, double value);
  const std::vector<SeriesPoint>& points() const { return points_; }

  // {"s": [steps], "m": [means]}, and with merged values {"l": [least], "h": [most]}. Six digits;
  // null for a gap.
  std::string json() const;

 private:
  std::vector<SeriesPoint> points_;
  int64_t values_per_point_ = 1;  // In each point except the last, which may have fewer.
  int64_t values_in_last_ = 0;
};

struct RunEvent {
  std::string name;  // "start", "save", …
  int64_t step = 0;
  std::string reason;    // For failed and console_lost.
  double seconds = 0.0;  // For save.
};

class MetricsLog {
 public:
  explicit MetricsLog(std::filesystem::path file);

  // Reads the lines that were added since the last call; all of them if the file was replaced, as a
  // resumed run does. Returns whether there are any. A file that does not exist has none. A last
  // line without its newline is left for the next call.
  bool update();

  // Metrics of the run and of its evaluations ("eval/<dataset>/<metric>"), by name.
  const std::map<std::string, Series>& series() const { return series_; }
  // Their last values, NaN if not finite, and those of metrics of single layers.
  const std::map<std::string, double>& last() const { return last_; }
  const std::map<std::string, double>& of_layers() const { return of_layers_; }
  const std::vector<RunEvent>& events() const { return events_; }  // The last kMostEvents.
  int64_t step() const { return step_; }                           // The step of the last line.
  int64_t damaged_lines() const { return damaged_lines_; }
  bool has_training_lines() const { return series_.contains("loss"); }

 private:
  void forget();
  void add_lines(std::string_view text);
  void add_line(std::string_view line);

  static constexpr size_t kMostEvents = 200;
  static constexpr size_t kMostSeries = 400;

  std::filesystem::path file_;
  uint64_t inode_ = 0;
  int64_t offset_ = 0;  // Read up to here.
  std::string rest_;    // What was read of an incomplete line.
  std::map<std::string, Series> series_;
  std::map<std::string, double> last_;
  std::map<std::string, double> of_layers_;
  std::vector<RunEvent> events_;
  int64_t step_ = 0;
  int64_t damaged_lines_ = 0;
};

}  // namespace tessera
