// SPDX-License-Identifier: Apache-2.0
// report.html in a run's directory: written by the run itself, now and then and at its end, and by
// --report=RUN from the files of any run (docs/report.md).
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tasks/run/log/console.h"
#include "tasks/run/report/run_report.h"

namespace tessera {

// The parts of the page, which are compiled into the program: the files of tasks/run/report/page
// (cmake/EmbedFiles.cmake).
std::map<std::string_view, std::string_view> page_files();

// The page as one HTML file that needs nothing else: its style, its scripts and its data, which is
// JSON. Whatever text the data contains, it ends neither the page's scripts nor its title.
std::string report_page(std::string_view title, std::string_view data);

// The data of the page of one run. `refresh`: how often the page asks a server for newer data; 0:
// never.
std::string page_data(const RunReport& run, std::chrono::seconds refresh = std::chrono::seconds(0));
std::string run_page(const RunReport& run, std::chrono::seconds refresh = std::chrono::seconds(0));

// Writes report.html and returns its path. Error if the directory is not a run's.
std::filesystem::path write_report(const std::filesystem::path& run_directory);

// The report of a run while it goes on. No failure to write it stops the run.
class LiveReport {
 public:
  // Prints once on the console why the report cannot be written.
  LiveReport(std::filesystem::path run_directory, Console& console);

  // Writes the report if it is time to: at most every half minute, and so rarely that it takes at
  // most a hundredth of the time of the run.
  void refresh();
  // Writes it now.
  void write();

 private:
  using Clock = std::chrono::steady_clock;

  std::filesystem::path run_directory_;
  Console& console_;
  std::optional<RunReport> run_;
  Clock::time_point next_;
  std::string problem_;
};

}  // namespace tessera
