// SPDX-License-Identifier: Apache-2.0
// What the report shows of the files in a run's directory (docs/formats.md) besides metrics.jsonl
// and the trace. A run may be half written or damaged: what cannot be read becomes a note, never an
// error.
#include <algorithm>
#include <sstream>
#include <system_error>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/hparams/text.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/log/jsonl_writer.h"
#include "tasks/run/report/run_report.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

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
        show("graph",
             JsonLine()
                 .add("file", file.filename().string())
                 .add("what", what)
                 .add("image", "data:image/svg+xml;base64," + base64(read_file(file, kMostOfGraph)))
                 .text());
      });
      return;
    }
  }

  fs::path directory_;
  RunFiles files_;
};

}  // namespace

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
