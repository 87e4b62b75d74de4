// SPDX-License-Identifier: Apache-2.0
// --mode=eval: scores checkpoints of a run.
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/modes/checkpoint_runs.h"

namespace tessera {
namespace {

struct Eval {
  static constexpr CommandInfo kInfo{.mode = "eval", .summary = "score checkpoints of a run"};
  RunFlags flags;
  std::string checkpoint = "newest";
  FIELDS(flags,
         About(checkpoint,
               "newest, a step (120 or step_0000000120), all, or follow, which scores each that a "
               "running job saves until it is done",
               {.unit = "WHICH"}))

  void check() const {
    flags.check();
    parse_checkpoint(checkpoint, CheckpointCount::kSeveral);
  }

  CommandResult run(const CommandContext& context) const {
    return run_mode({.flags = flags, .reads_data = true}, context, eval_run,
                    {parse_checkpoint(checkpoint, CheckpointCount::kSeveral)});
  }
};

}  // namespace

std::unique_ptr<Command> eval_command() { return command_of<Eval>(); }

}  // namespace tessera
