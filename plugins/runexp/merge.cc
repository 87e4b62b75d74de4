// SPDX-License-Identifier: Apache-2.0
// --mode=merge: the average of several checkpoints' weights.
#include "core/base/error.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/modes/modes.h"

namespace tessera {
namespace {

struct Merge {
  static constexpr CommandInfo kInfo{.mode = "merge",
                                     .summary = "average the weights of checkpoints"};
  RunFlags flags;
  ResumeFlags resume;
  MergeOptions merged;
  FIELDS(flags, resume, merged)

  void check() const {
    flags.check();
    if (merged.from.empty()) fail("--mode=merge averages checkpoints of a run: give --from=DIR");
    if (merged.steps.empty() == !merged.last.has_value())
      fail("--mode=merge needs either --steps=STEP for each checkpoint, or --last=N");
  }

  CommandResult run(const CommandContext& context) const {
    return run_mode({.flags = flags, .resume = resume, .writes = true}, context, merge_run, merged);
  }
};

}  // namespace

std::unique_ptr<Command> merge_command() { return command_of<Merge>(); }

}  // namespace tessera
