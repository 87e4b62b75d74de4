// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/report/report.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/run/report/page.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kLeastInterval(30);
constexpr int kShareOfTime = 100;  // The report takes at most one part in this many.

std::filesystem::path write_page(const RunReport& run) {
  const std::filesystem::path file = run.directory() / "report.html";
  write_file_atomically(file, run_page(run));
  return file;
}

}  // namespace

std::string page_data(const RunReport& run, std::chrono::seconds refresh) {
  return JsonLine()
      .add("kind", "run")
      .add("refresh_seconds", static_cast<int64_t>(refresh.count()))
      .add_raw("runs", fmt::format("[{}]", run.json("")))
      .text();
}

std::string run_page(const RunReport& run, std::chrono::seconds refresh) {
  return report_page(run.name(), page_data(run, refresh));
}

std::filesystem::path write_report(const std::filesystem::path& run_directory) {
  return write_page(RunReport(run_directory));
}

LiveReport::LiveReport(std::filesystem::path run_directory, Console& console)
    : run_directory_(std::move(run_directory)),
      console_(console),
      next_(Clock::now() + kLeastInterval) {}

void LiveReport::refresh() {
  if (Clock::now() >= next_) write();
}

void LiveReport::write() {
  const Clock::time_point begin = Clock::now();
  std::string problem;
  try {
    if (run_) {
      run_->update();
    } else {
      run_.emplace(run_directory_, ReportedBy::kRunItself);
    }
    write_page(*run_);
  } catch (const std::exception& error) {
    problem = error_text(error);
  }
  const Clock::time_point end = Clock::now();
  next_ = end + std::max<Clock::duration>(kLeastInterval, kShareOfTime * (end - begin));
  if (!problem.empty() && problem != problem_)
    console_.info(fmt::format("note: report.html is not written: {}", problem));
  problem_ = problem;
}

}  // namespace tessera
