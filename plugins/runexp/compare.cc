// SPDX-License-Identifier: Apache-2.0
// --compare: the metrics of several runs side by side, and a page that overlays them.
#include <sys/stat.h>

#include <filesystem>

#include <fmt/ostream.h>

#include "core/io/file.h"
#include "plugins/runexp/commands.h"
#include "tasks/run/directory/remote_run.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/report/run_comparison.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSamePart = 200;  // Bytes at the start of all pages.

struct Compare {
  static constexpr CommandInfo kInfo{.flag = "compare",
                                     .summary = "compare the metrics and configurations of runs"};
  std::vector<fs::path> compare;
  fs::path output = "compare.html";
  FIELDS(
      About(compare,
            "print the final metrics of runs and what differs in their configurations; a folder, "
            "such as that of a sweep, stands for the runs in it",
            {.unit = "RUN|URL RUN|URL ..."}),
      About(output, "the page that overlays them", {.unit = "FILE"}))

  CommandResult run(const CommandContext& context) const {
    if (!context.processes.is_first()) return check_printed();
    std::vector<fs::path> runs;
    std::vector<std::unique_ptr<RemoteRun>> remote;
    for (const fs::path& given : compare) {
      remote.push_back(RemoteRun::reader(given));
      for (fs::path& run : runs_of(remote.back() ? remote.back()->directory() : given))
        runs.push_back(std::move(run));
    }
    const RunComparison comparison = compare_runs(runs);
    // The page has what the runs have: if others cannot read one, they cannot read the page.
    for (const fs::path& run : runs)
      if ((fs::status(run).permissions() & fs::perms::others_read) == fs::perms::none)
        ::umask(S_IRWXG | S_IRWXO);
    require_same_kind(output, comparison.page.substr(0, kSamePart), "a page of --compare");
    write_file_atomically(output, comparison.page);
    fmt::print(context.out, "{}\nwrote {}\n", comparison_text(comparison), output.string());
    return check_printed();
  }
};

}  // namespace

std::unique_ptr<Command> compare_command() { return command_of<Compare>(); }

}  // namespace tessera
