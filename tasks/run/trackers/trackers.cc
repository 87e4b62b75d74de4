// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/trackers/trackers.h"

#include <chrono>
#include <cmath>
#include <random>

#include <fmt/format.h>

#include "core/hparams/text.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/run/trackers/exec_tracker.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Kind = TrackerRecord::Kind;

constexpr std::string_view kNotify = "notify";

// Adds the values of a configuration by path.
void add_values(const Tree& tree, const std::string& path,
                std::map<std::string, std::string>* values) {
  if (!tree.is_table()) {
    if (tree.is_set()) (*values)[path] = tree.is_text() ? tree.text : tree.value_text();
    return;
  }
  for (size_t i = 0; i < tree.items.size(); ++i)
    add_values(tree.items[i], tree.item_path(path, i), values);
}

// The run's own id, made at its first start.
std::string id_of(const fs::path& directory) {
  const fs::path file = directory / "trackers/id";
  if (fs::exists(file)) return read_file(file);
  std::random_device random;
  const std::string id = fmt::format("{:08x}{:08x}", random(), random());
  fs::create_directories(file.parent_path());
  write_file_atomically(file, id);
  return id;
}

std::string line_text(std::string_view line) { return fmt::format("{}\n", line); }

}  // namespace

void check_trackers(const TrainHParams& p) {
  for (const auto& [name, tracker] : p.trackers) {
    const ErrorContext where("task.train.trackers." + name);
    if (name.empty() || name == kNotify || name.find('/') != std::string::npos)
      fail("the tracker's name is '{}', expected a word other than '{}' without '/'", name,
           kNotify);
    tracker.instantiate();
  }
}

std::unique_ptr<Trackers> Trackers::start(const TrainHParams& p, const std::string& name,
                                          const std::string& hparams_toml,
                                          const fs::path& directory, int64_t step, Warn warn) {
  if (p.trackers.empty() && p.notify.empty()) return nullptr;
  TrackedRun run{.tracker = "",
                 .id = id_of(directory),
                 .name = name,
                 .directory = fs::absolute(directory),
                 .step = step,
                 .tags = p.tags,
                 .config = {}};
  add_values(parse_toml(hparams_toml, "hparams.toml"), "", &run.config);
  std::unique_ptr<Trackers> all(
      new Trackers(run.directory, p.tracker_wait_seconds, std::move(warn)));
  for (const auto& [tracker, tpl] : p.trackers) {
    run.tracker = tracker;
    all->queues_.try_emplace(tracker, tpl.instantiate(), run);
  }
  if (p.notify.empty()) return all;
  run.tracker = kNotify;
  all->queues_.try_emplace(run.tracker, std::make_unique<NotifyCommand>(p.notify), run);
  return all;
}

void Trackers::add(TrackerRecord record) {
  record.milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  for (auto& [name, queue] : queues_) queue.add(record);
  warn_of_problems();
}

void Trackers::warn_of_problems() {
  for (auto& [name, queue] : queues_)
    if (const std::string problem = queue.take_problem(); !problem.empty())
      warn_(fmt::format("warning: tracker {}: {}", name, problem));
}

void Trackers::metrics(int64_t step, const std::string& line) {
  TrackerRecord record{.kind = Kind::kMetrics, .step = step, .lines = line_text(line)};
  const Json members = parse_json(line, "metrics.jsonl");
  for (const auto& [name, value] : members.as_object())
    if (name != "step" && (value.is_number() || value.is_null()))
      record.metrics[name] = value.is_null() ? std::nan("") : value.as_number();
  add(std::move(record));
}

void Trackers::event(int64_t step, std::string_view line, std::string_view name) {
  add({.kind = Kind::kEvent, .step = step, .lines = line_text(line), .name = std::string(name)});
}

void Trackers::samples(int64_t step, const std::vector<std::string>& lines,
                       const std::map<std::string, std::string>& pages) {
  TrackerRecord record{.kind = Kind::kSamples, .step = step, .texts = pages};
  for (const std::string& line : lines)
    record.lines += R"({"record": "sample", )" + line_text(line.substr(1));
  add(std::move(record));
}

void Trackers::histogram(int64_t step, const std::string& name, const Bins& bins) {
  add({.kind = Kind::kHistogram,
       .step = step,
       .lines = line_text(JsonLine()
                              .add("record", "histogram")
                              .add("step", step)
                              .add("name", std::string_view(name))
                              .add_raw("edges", json_list(bins.edges))
                              .add_raw("counts", json_list(bins.counts))
                              .text()),
       .name = name});
}

std::map<std::string, int64_t> Trackers::finish(int64_t step, std::string_view line,
                                                std::string_view name) {
  for (const auto& entry : fs::directory_iterator(directory_)) {
    const fs::path file = entry.path().filename();
    if (file.extension() != ".svg" && file != "report.html") continue;
    add({.kind = Kind::kFile,
         .step = step,
         .lines = line_text(
             JsonLine().add("record", "file").add("step", step).add("name", file.string()).text()),
         .name = file.string()});
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(wait_seconds_);
  const TrackerRecord end{.kind = Kind::kEvent,
                          .step = step,
                          .milliseconds = std::time(nullptr) * int64_t{1000},
                          .lines = line_text(line),
                          .name = std::string(name)};
  for (auto& [tracker, queue] : queues_) queue.begin_end(end);
  std::map<std::string, int64_t> lost;
  for (auto& [tracker, queue] : queues_)
    if (const int64_t dropped = queue.finish(deadline); dropped > 0) lost[tracker] = dropped;
  warn_of_problems();
  for (const auto& [tracker, dropped] : lost)
    warn_(fmt::format("warning: tracker {} did not get {} records", tracker, dropped));
  return lost;
}

}  // namespace tessera
