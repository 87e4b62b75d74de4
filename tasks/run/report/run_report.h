// SPDX-License-Identifier: Apache-2.0
// A run as the report shows it, read from the files in its directory alone, so that a report can be
// made of a run that is going on, was interrupted or is finished.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tasks/run/report/metrics_log.h"
#include "tasks/run/report/step_profile.h"

namespace tessera {

// Error unless the directory is that of a run: it has hparams.toml or metrics.jsonl. The message
// names the nearest directory, or the runs below this one.
void require_run(const std::filesystem::path& directory);

struct RunFiles {
  std::string config;           // hparams.toml
  std::vector<LaunchKey> rows;  // Rows of program.json.
  // What the page shows of each file that is there, as JSON, by the name that its script uses
  // (page/run_page.js).
  std::vector<std::pair<std::string, std::string>> shown;
  std::vector<std::string> notes;  // What could not be read, and why.
};

RunFiles read_run_files(const std::filesystem::path& directory);

// Which program makes the report. A log without an end means an interrupted run, unless the run
// itself makes the report.
enum class ReportedBy { kRunItself, kOther };

class RunReport {
 public:
  // Error unless it is a run's directory.
  explicit RunReport(const std::filesystem::path& directory, ReportedBy by = ReportedBy::kOther);

  // Reads what is new; returns whether anything is.
  bool update();
  enum class Extent { kAll, kCharts };
  // An object with what the page shows (page/run_page.js), or only with what its charts do; the
  // run's name in it is `name`.
  std::string json(const std::string& name, Extent extent = Extent::kAll) const;

  const std::filesystem::path& directory() const { return directory_; }
  std::string name() const;  // The run's path or URL.
  const MetricsLog& metrics() const { return metrics_; }
  const RunFiles& files() const { return files_; }
  // "done", "failed", "stopped", "running", "unknown" or "empty", by the end of the log.
  std::string state() const;

 private:
  void read_profile_if_new();
  std::vector<std::string> notes() const;
  std::string reason() const;
  std::string seconds_of_rows() const;

  std::filesystem::path directory_;
  ReportedBy by_;
  MetricsLog metrics_;
  RunFiles files_;
  std::string stamp_;  // Sizes and times of the files when they were read.
  std::string profile_stamp_;
  std::optional<StepProfile> profile_;
  std::string profile_problem_;
};

}  // namespace tessera
