// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/report/report.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kLeastInterval(30);
constexpr int kShareOfTime = 100;  // The report takes at most one part in this many.

std::filesystem::path write_page(const RunReport& run) {
  const std::filesystem::path file = run.directory() / "report.html";
  write_file_atomically(file, run_page(run));
  return file;
}

std::string_view file_named(std::string_view name) {
  static const std::map<std::string_view, std::string_view> files = page_files();
  const auto found = files.find(name);
  CHECK(found != files.end(), "the page has no {}", name);
  return found->second;
}

// In a script "</script" and "<!--" have a meaning; JSON can write '<' by its number.
std::string in_script(std::string_view json) {
  std::string text;
  for (const char c : json) text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return text;
}

std::string scripts() {
  std::string text;
  for (const char* name : {"charts.js", "sections.js", "program_section.js", "run_page.js",
                           "comparison_page.js", "main.js"})
    text += file_named(name);
  return text;
}

}  // namespace

std::string page_data(const RunReport& run, std::chrono::seconds refresh) {
  return json_object({{"kind", "run"},
                      {"refresh_seconds", static_cast<int64_t>(refresh.count())},
                      {"runs", RawJson{fmt::format("[{}]", run.json(""))}}});
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

std::string report_page(std::string_view title, std::string_view data) {
  constexpr std::string_view kOpen = "{{", kClose = "}}";
  std::string page;
  std::string_view rest = file_named("report.html");
  for (size_t at; (at = rest.find(kOpen)) != std::string_view::npos;) {
    const size_t end = rest.find(kClose, at);
    CHECK(end != std::string_view::npos);
    const std::string_view name = rest.substr(at + kOpen.size(), end - at - kOpen.size());
    page += rest.substr(0, at);
    if (name == "title") page += markup_text(title);
    if (name == "style") page += file_named("report.css");
    if (name == "data") page += in_script(data);
    if (name == "script") page += scripts();
    rest.remove_prefix(end + kClose.size());
  }
  page += rest;
  return page;
}

}  // namespace tessera
