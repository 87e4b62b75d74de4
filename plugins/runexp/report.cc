// SPDX-License-Identifier: Apache-2.0
// --report: the report of a run, as a page.
#include "tasks/report/report.h"

#include <fmt/ostream.h>

#include "plugins/runexp/commands.h"

namespace tessera {
namespace {

struct Report {
  static constexpr CommandInfo kInfo{
      .flag = "report", .summary = "write report.html of a run, which a run itself writes, too"};
  std::filesystem::path report;
  FIELDS(About(report, "", {.unit = "RUN"}))

  CommandResult run(const CommandContext& context) const {
    if (context.processes.is_first())
      fmt::print(context.out, "wrote {}\n", write_report(report).string());
    return check_printed();
  }
};

}  // namespace

std::unique_ptr<Command> report_command() { return command_of<Report>(); }

}  // namespace tessera
