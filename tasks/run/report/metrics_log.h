// SPDX-License-Identifier: Apache-2.0
// Reads metrics.jsonl as it grows (docs/formats.md): the values of each metric by step, the last of
// them, and the events of the run. Lines that are not complete JSON, which a machine that stopped
// may leave, are counted and ignored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/run/report/series.h"

namespace tessera {

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
