// SPDX-License-Identifier: Apache-2.0
// --mode=show_batch: what the model of one host would get in a step.
#include "core/base/error.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/modes/show_batch_run.h"

namespace tessera {
namespace {

struct ShowBatch {
  static constexpr CommandInfo kInfo{.mode = "show_batch",
                                     .summary = "print what a host's model gets in a step"};
  RunFlags flags;
  int64_t step = 0;
  int64_t host = 0, hosts = 1;
  std::string dataset;
  int64_t rows = ShowBatchOptions{}.rows, length = ShowBatchOptions{}.length;
  FIELDS(flags, About(step, "the step that trains on the batch, from 0", {.min = 0}),
         About(host, "whose rows, of --hosts", {.min = 0}),
         About(hosts, "processes of the run, each with --devices", {.min = 1, .max = 1 << 20}),
         About(dataset, "one of eval_inputs or decode_inputs instead of the training input"),
         About(rows, "rows to print", {.min = 0}),
         About(length, "positions of each to print", {.min = 0}))

  void check() const {
    flags.check();
    if (host >= hosts) fail("--host={}: expected a host from 0 to {} (--hosts)", host, hosts - 1);
  }

  CommandResult run(const CommandContext& context) const {
    RunFlags reading = flags;
    reading.dry.dry_run = true;  // It writes nothing.
    return check_printed(run_mode({.flags = reading, .reads_data = true}, context, show_batch_run,
                                  {.step = step,
                                   .host = host,
                                   .hosts = hosts,
                                   .dataset = dataset,
                                   .rows = rows,
                                   .length = length}));
  }
};

}  // namespace

std::unique_ptr<Command> show_batch_command() { return command_of<ShowBatch>(); }

}  // namespace tessera
