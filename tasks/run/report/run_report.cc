// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/report/run_report.h"

#include <sys/stat.h>

#include <cmath>
#include <ctime>
#include <map>
#include <sstream>
#include <system_error>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/hparams/text.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/log/jsonl_writer.h"

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

// What the report shows of the files in a run's directory (docs/formats.md) besides metrics.jsonl
// and the trace. A run may be half written or damaged: what cannot be read becomes a note, never an
// error.

constexpr int64_t kMostOfConfig = int64_t{4} << 20;
constexpr int64_t kMostOfPlan = int64_t{64} << 20;
constexpr int64_t kMostOfProgram = int64_t{1} << 20;  // 500 rows have about 150 KiB.
constexpr int64_t kMostOfGraph = int64_t{3} << 20;
constexpr int64_t kTailOfSamples = int64_t{512} << 10;
constexpr int64_t kTailOfFailures = int64_t{16} << 10;
constexpr size_t kMostRunsNamed = 5;
constexpr size_t kMostSamples = 40;
constexpr size_t kLongestSample = 4000;  // Bytes of one text.

std::string shortened(std::string text, bool* is_cut) {
  if (text.size() <= kLongestSample) return text;
  *is_cut = true;
  size_t end = kLongestSample;  // Not within a character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text;
}

std::string integers_of(const Json& object) {
  JsonLine line;
  for (const auto& [name, value] : object.as_object()) line.add(name, value.as_integer());
  return line.text();
}

// The part of plan.json that the page shows; a plan of a large mesh is long.
std::string shown_of_plan(const Json& plan) {
  JsonLine line;
  for (const char* name : {"parameters", "devices", "peak_bytes", "arena_bytes"})
    line.add(name, plan.at(name).as_integer());
  for (const char* name : {"memory_per_device", "saved_for_backward"})
    line.add_raw(name, integers_of(plan.at(name)));
  return line.text();
}

// A line of samples.jsonl, with the beginnings of its texts.
std::string shown_of_sample(std::string_view line) {
  const Json json = parse_json(line, "samples.jsonl");
  bool is_cut = false;
  JsonLine sample;
  sample.add("step", json.at("step").as_integer());
  for (const char* name : {"prompt", "continuation"})
    sample.add(name, shortened(json.at(name).as_string(), &is_cut));
  if (is_cut) sample.add_raw("is_cut", "true");
  return sample.text();
}

class RunFilesReader {
 public:
  explicit RunFilesReader(fs::path directory) : directory_(std::move(directory)) {}

  RunFiles read() {
    read_if_there("hparams.toml", [this](const fs::path& file) { read_config(file); });
    read_if_there("plan.json", [this](const fs::path& file) { read_plan(file); });
    read_if_there("program.json", [this](const fs::path& file) { read_program(file); });
    read_if_there("samples.jsonl", [this](const fs::path& file) { read_samples(file); });
    read_if_there("failures.log", [this](const fs::path& file) {
      show("failures", json_quoted(valid_utf8(tail_of(file, kTailOfFailures))));
    });
    read_graph();
    return std::move(files_);
  }

 private:
  void show(const char* name, std::string json) {
    files_.shown.emplace_back(name, std::move(json));
  }

  template <typename Read>
  void read_if_there(const std::string& name, const Read& read) {
    std::error_code ignored;
    if (!fs::exists(directory_ / name, ignored)) return;
    try {
      read(directory_ / name);
    } catch (const std::exception& error) {
      files_.notes.push_back(valid_utf8(fmt::format("{} is not shown: {}", name, error.what())));
    }
  }

  void read_config(const fs::path& file) {
    files_.config = valid_utf8(read_file(file, kMostOfConfig));
    const std::string first = files_.config.substr(0, files_.config.find('\n'));
    show("config", json_quoted(files_.config));
    if (first.starts_with("# ")) show("experiment", json_quoted(first.substr(2)));
    show("num_steps", std::to_string(num_train_steps(parse_toml(files_.config, file.string()))));
  }

  void read_plan(const fs::path& file) {
    show("plan", shown_of_plan(parse_json(read_file(file, kMostOfPlan), file.string())));
  }

  // The page shows all of it, so the members that it reads must be there.
  void read_program(const fs::path& file) {
    std::string text = read_file(file, kMostOfProgram);
    const Json program = parse_json(text, file.string());
    for (const Json& row : program.at("rows").as_array()) {
      const std::string& path = row.at("path").as_string();
      files_.rows.push_back({row.at("phase").as_string() + (path.empty() ? "" : "." + path),
                             row.at("name").as_string(), row.at("source").as_string()});
      for (const char* member : {"count", "flops", "bytes", "sent_bytes"})
        row.at(member).as_number();
    }
    const Json& memory = program.at("memory");
    for (const char* member : {"peak_bytes", "peak_launch", "other_bytes", "other_values"})
      memory.at(member).as_integer();
    memory.at("at").as_string();
    for (const Json& value : memory.at("values").as_array()) {
      value.at("name").as_string();
      value.at("bytes").as_integer();
    }
    for (const Json& point : memory.at("points").as_array()) {
      if (point.as_array().size() != 3) fail("{}: expected [launch, used, bytes]", point.where());
      for (const Json& number : point.as_array()) number.as_integer();
    }
    show("program", std::move(text));
  }

  void read_samples(const fs::path& file) {
    std::vector<std::string> samples;
    std::istringstream text(tail_of(file, kTailOfSamples));
    for (std::string line; std::getline(text, line);) {
      try {
        samples.push_back(shown_of_sample(line));
      } catch (const Error&) {  // A line that a stopped machine left incomplete.
      }
    }
    if (samples.size() > kMostSamples) samples.erase(samples.begin(), samples.end() - kMostSamples);
    show("samples", json_list(samples));
  }

  // The optimised graph, if --dump_graph wrote it; else the one of every run.
  void read_graph() {
    for (const auto& [name, what] :
         {std::pair("graph_fuse.svg", "The step as it runs, after fusion"),
          std::pair("graph.svg", "The training step as the layers traced it")}) {
      std::error_code error;
      const auto size = fs::file_size(directory_ / name, error);
      if (error) continue;
      if (size > static_cast<uintmax_t>(kMostOfGraph)) {
        files_.notes.push_back(
            fmt::format("{} is not shown because it has {:.1f} MiB; a browser "
                        "can open it",
                        name, static_cast<double>(size) / (1 << 20)));
        continue;
      }
      // Embedded as a data URL: an image may neither run scripts nor load other files.
      read_if_there(name, [&, what = what](const fs::path& file) {
        show("graph", json_object({{"file", file.filename().string()},
                                   {"what", what},
                                   {"image", "data:image/svg+xml;base64," +
                                                 base64(read_file(file, kMostOfGraph))}}));
      });
      return;
    }
  }

  fs::path directory_;
  RunFiles files_;
};

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

void require_run(const fs::path& directory) {
  std::error_code ignored;
  if (is_run(directory)) return;
  if (!fs::exists(directory, ignored))
    fail("no run in {}: no such directory{}", directory.string(), did_you_mean_run(directory));
  if (!fs::is_directory(directory, ignored))
    fail("{} is a file; expected a run's directory, such as runs/quickstart.SourceLm",
         directory.string());
  std::vector<std::string> runs;
  for (const fs::path& run : runs_below(directory, kMostRunsNamed)) runs.push_back(run.string());
  fail("{} is not a run's directory: it has neither hparams.toml nor metrics.jsonl{}",
       directory.string(),
       runs.empty() ? "" : fmt::format("; there are runs in it: {}", fmt::join(runs, ", ")));
}

RunFiles read_run_files(const fs::path& directory) { return RunFilesReader(directory).read(); }

}  // namespace tessera
