// SPDX-License-Identifier: Apache-2.0
#include "plugins/show_runs.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ostream.h>

#include "core/io/file.h"
#include "tasks/report/report.h"
#include "tasks/report/run_comparison.h"
#include "tasks/report/watch.h"
#include "tasks/run_directory/find_runs.h"

namespace tessera {
namespace {

constexpr size_t kSamePart = 200;  // Bytes at the start of all pages.

}  // namespace

void show_runs(const CommandLine& line, std::ostream& out) {
  if (line.action == CommandLine::Action::kReport) {
    fmt::print(out, "wrote {}\n", write_report(line.runs[0]).string());
  } else if (line.action == CommandLine::Action::kCompare) {
    std::vector<std::filesystem::path> runs;
    for (const std::filesystem::path& given : line.runs)
      for (std::filesystem::path& run : runs_of(given)) runs.push_back(std::move(run));
    const RunComparison comparison = compare_runs(runs);
    // The page has what the runs have: if others cannot read one, they cannot read the page.
    for (const std::filesystem::path& run : runs)
      if ((std::filesystem::status(run).permissions() & std::filesystem::perms::others_read) ==
          std::filesystem::perms::none)
        ::umask(S_IRWXG | S_IRWXO);
    const std::filesystem::path file = line.run.output.empty() ? "compare.html" : line.run.output;
    require_same_kind(file, comparison.page.substr(0, kSamePart), "a page of --compare");
    write_file_atomically(file, comparison.page);
    fmt::print(out, "{}\nwrote {}\n", comparison_text(comparison), file.string());
  } else {
    watch_run(line.runs[0], line.port, [&](const std::string& address) {
      fmt::print(out, "{} shows {}; Ctrl-C ends it\n", address, line.runs[0].string());
      out.flush();
    });
  }
}

}  // namespace tessera
