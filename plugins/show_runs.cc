// SPDX-License-Identifier: Apache-2.0
#include "plugins/show_runs.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include <fmt/ostream.h>

#include "core/io/file.h"
#include "tasks/report/report.h"
#include "tasks/report/run_comparison.h"
#include "tasks/report/watch.h"

namespace tessera {
namespace {

constexpr size_t kSamePart = 200;  // Bytes at the start of all pages.

}  // namespace

void show_runs(const CommandLine& line, std::ostream& out) {
  if (line.action == CommandLine::Action::kReport) {
    fmt::print(out, "wrote {}\n", write_report(line.runs[0]).string());
  } else if (line.action == CommandLine::Action::kCompare) {
    const RunComparison comparison = compare_runs(line.runs);
    // The page has what the runs have: if others cannot read one, they cannot read the page.
    for (const std::filesystem::path& run : line.runs)
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
