// SPDX-License-Identifier: Apache-2.0
// --report: the report of a run, as a page.
#include "tasks/run/report/report.h"

#include <fmt/ostream.h>

#include "plugins/runexp/commands.h"
#include "tasks/run/directory/remote_run.h"

namespace tessera {
namespace {

struct Report {
  static constexpr CommandInfo kInfo{
      .flag = "report", .summary = "write report.html of a run, which a run itself writes, too"};
  std::filesystem::path report;
  FIELDS(About(report, "", {.unit = "RUN|URL"}))

  CommandResult run(const CommandContext& context) const {
    if (!context.processes.is_first()) return check_printed();
    const std::unique_ptr<RemoteRun> remote = RemoteRun::reader(report);
    const std::filesystem::path page = write_report(remote ? remote->directory() : report);
    if (remote) remote->finish();
    fmt::print(context.out, "wrote {}\n", (report / page.filename()).string());
    return check_printed();
  }
};

}  // namespace

std::unique_ptr<Command> report_command() { return command_of<Report>(); }

}  // namespace tessera
