// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/log/run_log.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace tessera {

std::string split_of(std::string_view eval_metric) {
  constexpr std::string_view kEvalMetricPrefix = "eval/";
  const size_t slash = eval_metric.rfind('/');
  CHECK(eval_metric.starts_with(kEvalMetricPrefix) && slash > kEvalMetricPrefix.size(),
        "eval metric '{}'", eval_metric);
  return std::string(
      eval_metric.substr(kEvalMetricPrefix.size(), slash - kEvalMetricPrefix.size()));
}

RunLog::RunLog(const std::filesystem::path& run_directory, int64_t restored_step,
               std::unique_ptr<Trackers> trackers)
    : run_directory_(run_directory),
      first_step_(restored_step + 1),
      trackers_(std::move(trackers)) {
  lines_.emplace(run_directory / "metrics.jsonl", restored_step);
  const std::filesystem::path samples = run_directory / "samples.jsonl";
  if (std::filesystem::exists(samples)) sample_lines_.emplace(samples, restored_step);
}

EventFile& RunLog::events_of(const std::string& split) {
  return events_.try_emplace(split, run_directory_ / "summaries" / split, first_step_)
      .first->second;
}

void RunLog::flush() {
  for (auto& [split, file] : events_) file.flush();
}

void RunLog::train(const TrainLine& line) {
  if (!lines_) return;
  JsonLine json;
  json.add("step", line.step).add("loss", line.loss);
  for (const auto& [name, value] : line.metrics)
    if (name != "loss") json.add(name, value);
  json.add("learning_rate", line.learning_rate);
  for (const auto& [name, value] : line.rule_rates) json.add(name, value);
  json.add("grad_norm", line.grad_norm)
      .add("tokens", line.tokens)
      .add("tokens_per_sec", line.tokens_per_sec)
      .add("step_time", line.step_time);
  if (line.mfu >= 0.0) json.add("mfu", line.mfu);
  json.add("input_wait", line.input_wait).add("skipped", line.skipped);
  for (const auto& [name, value] : line.parameter_norms) json.add(name, value);
  lines_->append(json.text());
  if (trackers_) trackers_->metrics(line.step, json.text());
}

void RunLog::summarise(const TrainLine& line) {
  if (!lines_) return;
  EventFile& file = events_of("train");
  file.scalar(line.step, "loss", line.loss);
  for (const auto& [name, value] : line.metrics)
    if (name != "loss") file.scalar(line.step, metric_tag(name, line.metrics), value);
  for (const auto& [name, values] : line.histograms)
    add_histogram("train", line.step, metric_tag(name, line.histograms), name, equal_bins(values));
  file.scalar(line.step, "learning_rate", line.learning_rate);
  for (const auto& [name, value] : line.rule_rates) file.scalar(line.step, name, value);
  file.scalar(line.step, "grad_norm", line.grad_norm);
  file.scalar(line.step, "skipped", static_cast<double>(line.skipped));
  file.scalar(line.step, "speed/tokens_per_sec", line.tokens_per_sec);
  file.scalar(line.step, "speed/step_time", line.step_time);
  file.scalar(line.step, "speed/input_wait", line.input_wait);
  if (line.mfu >= 0.0) file.scalar(line.step, "speed/mfu", line.mfu);
  for (const auto& [name, value] : line.parameter_norms) file.scalar(line.step, name, value);
  flush();
}

void RunLog::weight_histograms(int64_t step, const std::map<std::string, Bins>& histograms) {
  if (!lines_ || histograms.empty()) return;
  for (const auto& [name, bins] : histograms) add_histogram("train", step, name, name, bins);
  flush();
}

void RunLog::add_histogram(const std::string& split, int64_t step, const std::string& tag,
                           const std::string& name, const Bins& bins) {
  events_of(split).histogram(step, tag, bins);
  if (trackers_ && !bins.counts.empty()) trackers_->histogram(step, name, bins);
}

// Each dataset is a split, so that TensorBoard draws their losses in one chart.
void RunLog::eval(int64_t step, const std::map<std::string, double>& metrics,
                  const Histograms& histograms) {
  if (!lines_) return;
  JsonLine json;
  json.add("step", step);
  for (const auto& [name, value] : metrics) {
    json.add(name, value);
    events_of(split_of(name)).scalar(step, metric_tag(name, metrics), value);
  }
  for (const auto& [name, values] : histograms)
    add_histogram(split_of(name), step, metric_tag(name, histograms), name, equal_bins(values));
  lines_->append(json.text());
  flush();
  if (trackers_) trackers_->metrics(step, json.text());
}

// A run's last event comes after the end of its trackers: it is the last line.
void RunLog::append_event(std::string_view name, int64_t step, const std::string& line) {
  if (trackers_ && (name == "done" || name == "failed" || name == "preempt")) {
    before_end_();
    for (const auto& [tracker, dropped] :
         std::exchange(trackers_, nullptr)->finish(step, line, name))
      event("tracker_dropped", step, {{"count", static_cast<double>(dropped)}},
            {{"tracker", tracker}});
  } else if (trackers_) {
    trackers_->event(step, line, name);
  }
  lines_->append(line);
}

void RunLog::event(std::string_view name, int64_t step,
                   const std::map<std::string, double>& details,
                   const std::map<std::string, std::string>& texts) {
  if (!lines_) return;
  JsonLine json;
  json.add("event", name).add("step", step);
  for (const auto& [key, value] : details) json.add(key, value);
  for (const auto& [key, value] : texts) json.add(key, valid_utf8(value));
  append_event(name, step, json.text());
}

void RunLog::event(std::string_view name, int64_t step, std::string_view reason) {
  if (!lines_) return;
  append_event(name, step,
               json_object({{"event", name}, {"step", step}, {"reason", valid_utf8(reason)}}));
}

void RunLog::samples(int64_t step, const std::vector<std::string>& lines,
                     const std::map<std::string, std::string>& pages) {
  if (!lines_) return;
  if (!sample_lines_) sample_lines_.emplace(run_directory_ / "samples.jsonl", step);
  for (const auto& [name, markdown] : pages) events_of("train").text(step, name, markdown);
  for (const std::string& line : lines) sample_lines_->append(line);
  flush();
  if (trackers_) trackers_->samples(step, lines, pages);
}

std::unique_ptr<RunLog> open_run_log(const RunSetting& setting, const TrainHParams& p,
                                     const std::string& hparams_toml,
                                     const std::filesystem::path& files, int64_t restored_step,
                                     Console& console) {
  const std::filesystem::path directory = std::filesystem::absolute(setting.job_log_dir);
  const std::string name = fmt::format("{}/{}", setting.experiment, directory.filename().string());
  auto log = std::make_unique<RunLog>(
      files, restored_step,
      Trackers::start(p, name, hparams_toml, directory, restored_step,
                      [&console](std::string_view line) { console.info(line); }));
  const std::string gaps =
      describe_log_gaps(read_log(files / "metrics.jsonl"), restored_step, p.metrics_interval_steps);
  if (!gaps.empty()) console.info("note: " + gaps);
  return log;
}

void CorruptRecordsReport::report(const InputState& state, int64_t step, RunLog& log,
                                  Console& console) {
  const CorruptRecordCount corrupt = corrupt_records(state);
  if (corrupt.count <= reported_) return;
  reported_ = corrupt.count;
  log.event("broken_documents", step, {{"count", static_cast<double>(corrupt.count)}});
  console.info(fmt::format("step {}: {} corrupt document{} been skipped so far; the first: {}",
                           step, corrupt.count, corrupt.count == 1 ? " has" : "s have",
                           corrupt.first));
}

void log_failure(const std::filesystem::path& run_directory, std::string_view text) {
  if (run_directory.empty()) return;
  const std::filesystem::path file = run_directory / "failures.log";
  FileDescriptor opened;
  try {
    opened = open_own_file(file);
  } catch (const Error&) {
    return;
  }
  std::string line =
      fmt::format("{:%Y-%m-%dT%H:%M:%SZ} {}", fmt::gmtime(std::time(nullptr)), printable(text));
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  // One write, so that lines of several processes do not interleave.
  [[maybe_unused]] const ssize_t written = ::write(opened.get(), line.data(), line.size());
}

}  // namespace tessera
