// SPDX-License-Identifier: Apache-2.0
// The results of an evaluation: a table on the console with a line for each dataset, source and
// tag, and the files of --mode=eval.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/run/eval/evaluation.h"
#include "tasks/run/log/console.h"
#include "tasks/run/log/event_file.h"

namespace tessera {

// The table's lines from the metrics of an EvalReport; empty if the report has no metrics. It
// leaves out what single layers report. Metrics that do not fit into 100 columns follow in another
// table below.
std::vector<std::string> eval_table(int64_t step, const std::map<std::string, double>& metrics);

// Prints the table and the report's remarks.
void print_evaluation(int64_t step, const EvalReport& report, Console* console);

// Shows the progress of an evaluation on the console, and ends it at a stop signal. Both outlive
// it.
EvalMonitor monitor_of(const StopSignal& stop, Console& console);

// The output of --mode=eval in a run's directory: eval_out/<dataset>.jsonl and TensorBoard
// summaries (docs/formats.md). Several evaluators may append to the same files while the job
// trains; they never touch the job's own files.
class EvalWriter {
 public:
  explicit EvalWriter(std::filesystem::path run_directory);

  // Appends the metrics of a report, after `step` training steps.
  void add(int64_t step, const EvalReport& report);
  // Steps for which the dataset's file has a line.
  std::set<int64_t> steps(const std::string& dataset) const;
  const std::filesystem::path& directory() const { return directory_; }

 private:
  EventFile& events_of(const std::string& split);

  std::filesystem::path directory_;
  std::map<std::string, std::unique_ptr<EventFile>> events_;  // By split.
};

// Appends one line to a file that several processes write, under a lock (flock). Creates the file
// and its directory, and removes an incomplete line that a killed writer left.
void append_shared_line(const std::filesystem::path& path, std::string_view line);

}  // namespace tessera
