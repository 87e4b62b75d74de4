// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/eval/eval_output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/run/log/jsonl_writer.h"
#include "tasks/run/log/run_log.h"

namespace tessera {
namespace {

constexpr std::string_view kEvalPrefix = "eval/";
constexpr std::string_view kTagPrefix = "tag/";
// These columns come first, in this order.
constexpr std::string_view kFirst[] = {"loss",          "log_pplx", "perplexity",
                                       "bits_per_byte", "accuracy", "weight"};

// The values of a line by metric, and the lines by whether they are tags, which come last, and by
// name: "validation", "validation/books", "tag/code".
using EvalLine = std::map<std::string, double>;
using EvalLines = std::map<std::pair<bool, std::string>, EvalLine>;

size_t rank(const std::string& metric) {
  return static_cast<size_t>(std::ranges::find(kFirst, metric) - std::begin(kFirst));
}

EvalLines lines_of(const std::map<std::string, double>& metrics) {
  EvalLines lines;
  for (const auto& [full, value] : metrics) {
    if (is_of_one_layer(full, metrics)) continue;
    const std::string name = full.substr(full.starts_with(kEvalPrefix) ? kEvalPrefix.size() : 0);
    const size_t slash = name.rfind('/');
    std::string of = slash == std::string::npos ? "" : name.substr(0, slash);
    std::string metric = name.substr(slash + 1);
    if (metric.starts_with(kMacroPrefix)) {
      of += " (macro)";
      metric.erase(0, std::string_view(kMacroPrefix).size());
    }
    lines[{of.starts_with(kTagPrefix), of}][metric] = value;
  }
  return lines;
}

// The metrics, by rank and name.
std::set<std::pair<size_t, std::string>> columns_of(const EvalLines& lines) {
  std::set<std::pair<size_t, std::string>> columns;
  for (const auto& [key, line] : lines)
    for (const auto& [metric, value] : line) columns.emplace(rank(metric), metric);
  return columns;
}

std::string cell(const EvalLine& line, const std::string& metric) {
  const auto found = line.find(metric);
  if (found == line.end()) return "";
  const double value = found->second;
  if (!std::isfinite(value)) return "-";
  if (metric == "weight") return count_text(value);
  return std::abs(value) < 1e5 ? fmt::format("{:.4f}", value) : fmt::format("{:.3g}", value);
}

}  // namespace

std::vector<std::string> eval_table(int64_t step, const std::map<std::string, double>& metrics) {
  if (metrics.empty()) return {};
  const EvalLines lines = lines_of(metrics);
  const auto columns = columns_of(lines);
  std::vector<std::vector<std::string>> cells = {{fmt::format("step {}", step)}};
  for (const auto& [order, metric] : columns)
    cells[0].push_back(metric == "weight" ? "labels" : metric);
  for (const auto& [key, line] : lines) {
    std::vector<std::string>& row = cells.emplace_back(1, key.second);
    for (const auto& [order, metric] : columns) row.push_back(cell(line, metric));
  }
  return table_lines(cells);
}

void print_evaluation(int64_t step, const EvalReport& report, Console* console) {
  for (const std::string& line : eval_table(step, report.metrics)) console->info(line);
  for (const std::string& remark : report.remarks) console->info("note: " + remark);
}

EvalMonitor monitor_of(const StopSignal& stop, Console& console) {
  constexpr double kLongestSeconds = 10.0;
  return {.stop = &stop, .progress = [&console](const std::string& text) {
            console.progress(text, kLongestSeconds);
          }};
}

EvalWriter::EvalWriter(std::filesystem::path run_directory)
    : directory_(std::move(run_directory) / "eval_out") {}

EventFile& EvalWriter::events_of(const std::string& split) {
  std::unique_ptr<EventFile>& events = events_[split];
  if (!events) events = std::make_unique<EventFile>(directory_ / "summaries" / split, 0);
  return *events;
}

void EvalWriter::add(int64_t step, const EvalReport& report) {
  std::map<std::string, JsonLine> lines;  // By file: the first part of the metric's name.
  for (const auto& [full, value] : report.metrics) {
    const std::string split = split_of(full);
    const std::string file = split.substr(0, split.find('/'));
    const auto [line, is_new] = lines.try_emplace(file);
    if (is_new) line->second.add("step", step);
    line->second.add(full.substr(kEvalPrefix.size() + file.size() + 1), value);
    if (!std::isfinite(value)) continue;
    events_of(split).scalar(step, metric_tag(full, report.metrics), value);
  }
  for (const auto& [full, values] : report.histograms)
    events_of(split_of(full))
        .histogram(step, metric_tag(full, report.histograms), equal_bins(values));
  for (const auto& [file, line] : lines)
    append_shared_line(directory_ / (file + ".jsonl"), line.text());
  for (const auto& [split, events] : events_) events->flush();
}

std::set<int64_t> EvalWriter::steps(const std::string& dataset) const {
  std::set<int64_t> steps;
  std::istringstream text(read_log(directory_ / (dataset + ".jsonl")));
  for (std::string line; std::getline(text, line) && !text.eof();)  // Complete lines only.
    if (const auto step = step_of_line(line)) steps.insert(*step);
  return steps;
}

void append_shared_line(const std::filesystem::path& path, std::string_view line) {
  std::filesystem::create_directories(path.parent_path());
  const FileDescriptor file = open_own_file(path);
  // Without locks a line of another evaluator at the same moment may be cut.
  lock_file(file.get(), LockWait::kYes);
  // Removes an incomplete last line.
  const size_t size = read_log(path).rfind('\n') + 1;  // 0 without a newline.
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0)
    fail("{}: cannot truncate: {}", path.string(), std::strerror(errno));
  write_whole(file.get(), std::string(line) + "\n", path);
}

}  // namespace tessera
