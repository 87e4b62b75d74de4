// SPDX-License-Identifier: Apache-2.0
// The machine-readable record of a run: lines of metrics.jsonl and TensorBoard summaries, with the
// names of docs/formats.md, which it also passes on to the run's trackers; and failures.log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/base_input.h"
#include "tasks/run/log/console.h"
#include "tasks/run/log/event_file.h"
#include "tasks/run/log/jsonl_writer.h"
#include "tasks/run/run_setting.h"
#include "tasks/run/trackers/trackers.h"

namespace tessera {

using Histograms = std::map<std::string, std::vector<double>>;

// The values of one training step.
struct TrainLine {
  int64_t step = 0;  // Number of steps done, this one included.
  double loss = 0.0;
  double learning_rate = 0.0;
  std::map<std::string, double> rule_rates;  // "learning_rate/<name>" of each optimizer rule.
  double grad_norm = 0.0;
  int64_t tokens = 0;  // Since step 0.
  double tokens_per_sec = 0.0;
  double step_time = 0.0;   // Seconds.
  double mfu = 0.0;         // Negative: unknown, not written.
  double input_wait = 0.0;  // Seconds of step_time spent waiting for input.
  int64_t skipped = 0;
  std::map<std::string, double> metrics;  // log_pplx, accuracy, …
  Histograms histograms;                  // By metric; for TensorBoard.
  std::map<std::string, double> parameter_norms;
};

// Whether a metric is that of one layer: `all` has its name without the path of a layer, too
// (layers/summaries.h). Names may begin "eval/<dataset>/".
template <typename Value>
bool is_of_one_layer(const std::string& name, const std::map<std::string, Value>& all) {
  const size_t begin = name.rfind('/') + 1, dot = name.rfind('.');
  return dot != std::string::npos && dot > begin &&
         all.contains(name.substr(0, begin) + name.substr(dot + 1));
}

// The tag of a metric in TensorBoard, which groups charts by what precedes the first '/': the
// values that layers have of one metric ("….x_layers[3].ffn.z_loss") are in the group of that
// metric ("z_loss/….x_layers[3].ffn").
template <typename Value>
std::string metric_tag(const std::string& name, const std::map<std::string, Value>& all) {
  std::string metric = name.substr(name.rfind('/') + 1);
  if (!is_of_one_layer(name, all)) return metric;
  const size_t dot = metric.rfind('.');
  return metric.substr(dot + 1) + "/" + metric.substr(0, dot);
}

// The split of "eval/mixture/books/loss" is "mixture/books".
std::string split_of(std::string_view eval_metric);

class RunLog {
 public:
  RunLog() = default;  // Records nothing, for processes other than process 0.
  // Appends to the directory's files after removing lines after `restored_step`.
  RunLog(const std::filesystem::path& run_directory, int64_t restored_step,
         std::unique_ptr<Trackers> trackers = nullptr);

  // What another program did to metrics.jsonl (JsonlWriter::damage), or "".
  std::string_view damage() const { return lines_ ? lines_->damage() : ""; }

  void train(const TrainLine& line);
  void summarise(const TrainLine& line);
  void weight_histograms(int64_t step, const std::map<std::string, Bins>& histograms);
  // Called before the last event, if there are trackers.
  void before_end(std::function<void()> call) { before_end_ = std::move(call); }
  // Metrics by name, "eval/<dataset>/<metric>", after `step` steps.
  void eval(int64_t step, const std::map<std::string, double>& metrics,
            const Histograms& histograms = {});
  // start, restore, save, skip, broken_documents, preempt, done, …; with further numbers and texts.
  void event(std::string_view name, int64_t step, const std::map<std::string, double>& details = {},
             const std::map<std::string, std::string>& texts = {});
  // failed, console_lost: with the reason.
  void event(std::string_view name, int64_t step, std::string_view reason);
  // Texts that the model generated after `step` steps: lines of samples.jsonl, and pages of
  // TensorBoard's text tab by name.
  void samples(int64_t step, const std::vector<std::string>& lines,
               const std::map<std::string, std::string>& pages);

 private:
  EventFile& events_of(const std::string& split);
  void flush();
  void add_histogram(const std::string& split, int64_t step, const std::string& tag,
                     const std::string& name, const Bins& bins);
  void append_event(std::string_view name, int64_t step, const std::string& line);

  std::filesystem::path run_directory_;
  int64_t first_step_ = 0;
  std::optional<JsonlWriter> lines_;         // None: nothing is recorded.
  std::optional<JsonlWriter> sample_lines_;  // Created when first used, as are events_.
  std::map<std::string, EventFile> events_;  // By split.
  std::unique_ptr<Trackers> trackers_;       // Null: none, or ended.
  std::function<void()> before_end_ = [] {};
};

// The log of a run of training in `files`, the run's directory, with the trackers of `p`.
std::unique_ptr<RunLog> open_run_log(const RunSetting& setting, const TrainHParams& p,
                                     const std::string& hparams_toml,
                                     const std::filesystem::path& files, int64_t restored_step,
                                     Console& console);

// Reports records that were skipped because they could not be read.
class CorruptRecordsReport {
 public:
  // Skips what was reported before the run was resumed.
  void restore(const InputState& state) { reported_ = corrupt_records(state).count; }
  // Writes an event and prints a line if more records were skipped than reported so far.
  void report(const InputState& state, int64_t step, RunLog& log, Console& console);

 private:
  int64_t reported_ = 0;
};

// Appends a line with the time to failures.log in a run's directory: why a run ended badly. Any
// process of the run may append. Does nothing if the directory does not exist or is not writable:
// the same text is on stderr.
void log_failure(const std::filesystem::path& run_directory, std::string_view text);

}  // namespace tessera
