// SPDX-License-Identifier: Apache-2.0
// --mode=show_batch: what the model of one host would get in a step.
#include "core/base/error.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/modes/modes.h"

namespace tessera {
namespace {

struct ShowBatch {
  static constexpr CommandInfo kInfo{.mode = "show_batch",
                                     .summary = "print what a host's model gets in a step"};
  RunFlags flags;
  ShowBatchOptions shown;
  FIELDS(flags, shown)

  void check() const {
    flags.check();
    if (shown.host >= shown.hosts)
      fail("--host={}: expected a host from 0 to {} (--hosts)", shown.host, shown.hosts - 1);
  }

  CommandResult run(const CommandContext& context) const {
    RunFlags reading = flags;
    reading.dry.dry_run = true;  // It writes nothing.
    return check_printed(
        run_mode({.flags = reading, .reads_data = true}, context, show_batch_run, shown));
  }
};

}  // namespace

std::unique_ptr<Command> show_batch_command() { return command_of<ShowBatch>(); }

}  // namespace tessera
