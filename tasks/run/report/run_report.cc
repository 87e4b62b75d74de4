// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/report/run_report.h"

#include <sys/stat.h>

#include <cmath>
#include <ctime>
#include <map>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/json.h"
#include "core/runtime/checkpoint/checkpoint_store.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Changes when the file does; "" without a file.
std::string stamp_of(const fs::path& path) {
  struct stat now {};
  if (::stat(path.c_str(), &now) != 0) return "";
  return fmt::format("{} {} {}.{} ", now.st_ino, now.st_size, now.st_mtim.tv_sec,
                     now.st_mtim.tv_nsec);
}

// When the run last wrote its log; "" if it has none.
std::string time_of(const fs::path& path) {
  struct stat now {};
  if (::stat(path.c_str(), &now) != 0) return "";
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now.st_mtim.tv_sec));
}

std::string numbers_json(const std::map<std::string, double>& numbers) {
  JsonLine line;
  for (const auto& [name, value] : numbers)
    line.add_raw(name, std::isfinite(value) ? fmt::format("{:.8g}", value) : "null");
  return line.text();
}

std::string series_json(const std::map<std::string, Series>& all) {
  JsonLine line;
  for (const auto& [name, series] : all) line.add_raw(name, series.json());
  return line.text();
}

std::string event_json(const RunEvent& event) {
  JsonLine line;
  line.add("event", event.name).add("step", event.step);
  if (!event.reason.empty()) line.add("reason", event.reason);
  if (event.seconds > 0.0) line.add("seconds", event.seconds);
  return line.text();
}

}  // namespace

RunReport::RunReport(const fs::path& directory, ReportedBy by)
    : directory_(directory), by_(by), metrics_(directory / "metrics.jsonl") {
  require_run(directory);
  update();
}

bool RunReport::update() {
  bool has_changed = metrics_.update();
  std::string stamp;
  for (const char* name : {"hparams.toml", "plan.json", "program.json", "samples.jsonl",
                           "failures.log", "graph_fuse.svg", "graph.svg", "trace.json.gz"})
    stamp += stamp_of(directory_ / name) + ";";
  if (stamp != stamp_) {
    files_ = read_run_files(directory_);
    read_profile_if_new();
    stamp_ = std::move(stamp);
    has_changed = true;
  }
  return has_changed;
}

void RunReport::read_profile_if_new() {
  const fs::path file = directory_ / "trace.json.gz";
  std::string stamp = stamp_of(file);
  if (stamp == profile_stamp_) return;
  profile_stamp_ = std::move(stamp);
  profile_.reset();
  profile_problem_.clear();
  if (profile_stamp_.empty()) return;
  try {
    profile_ = read_profile(file);
  } catch (const std::exception& error) {
    profile_problem_ = error_text(error);
  }
}

std::string RunReport::state() const {
  for (auto event = metrics_.events().rbegin(); event != metrics_.events().rend(); ++event) {
    if (event->name == "done") return "done";
    if (event->name == "failed") return "failed";
    if (event->name == "preempt") return "stopped";
    if (event->name == "start") break;
  }
  if (by_ == ReportedBy::kRunItself) return "running";
  return metrics_.has_training_lines() ? "unknown" : "empty";
}

std::string RunReport::reason() const {
  const auto& events = metrics_.events();
  return !events.empty() && events.back().name == "failed" ? events.back().reason : "";
}

std::vector<std::string> RunReport::notes() const {
  std::vector<std::string> notes = files_.notes;
  if (const int64_t count = metrics_.damaged_lines(); count > 0)
    notes.push_back(fmt::format("{} line{} of metrics.jsonl {} not complete, and {} not shown",
                                count, count == 1 ? "" : "s", count == 1 ? "is" : "are",
                                count == 1 ? "is" : "are"));
  if (!profile_problem_.empty())
    notes.push_back(valid_utf8(fmt::format("trace.json.gz is not shown: {}", profile_problem_)));
  return notes;
}

// Seconds of each row of the program; null where the trace has none, or without a trace.
std::string RunReport::seconds_of_rows() const {
  if (!profile_) return "null";
  return json_list(files_.rows, [this](const LaunchKey& row) {
    const auto found = profile_->seconds_of.find(row);
    return found == profile_->seconds_of.end() ? "null" : fmt::format("{:.4g}", found->second);
  });
}

std::string RunReport::name() const { return valid_utf8(place_of_run(directory_).string()); }

std::string RunReport::json(const std::string& name, Extent extent) const {
  JsonLine line;
  line.add("directory", this->name()).add("name", name);
  line.add("step", metrics_.step());
  line.add_raw("series", series_json(metrics_.series()));
  if (extent == Extent::kCharts) return line.text();
  for (const auto& [member, json] : files_.shown) line.add_raw(member, json);
  line.add("state", state()).add("reason", reason());
  line.add("written", time_of(directory_ / "metrics.jsonl"));
  line.add_raw("last", numbers_json(metrics_.last()));
  line.add_raw("layers", numbers_json(metrics_.of_layers()));
  line.add_raw("events", json_list(metrics_.events(), event_json));
  line.add_raw("row_seconds", seconds_of_rows());
  line.add_raw("profile", profile_ ? profile_json(*profile_) : "null");
  line.add_raw("notes", json_list(notes(), json_quoted));
  return line.text();
}

}  // namespace tessera
