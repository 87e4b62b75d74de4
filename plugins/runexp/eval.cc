// SPDX-License-Identifier: Apache-2.0
// --mode=eval: scores checkpoints of a run.
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run/modes/modes.h"

namespace tessera {
namespace {

struct Eval {
  static constexpr CommandInfo kInfo{.mode = "eval", .summary = "score checkpoints of a run"};
  RunFlags flags;
  CheckpointFlags from;
  FIELDS(flags, from)

  void check() const {
    flags.check();
    from.choice();
  }

  CommandResult run(const CommandContext& context) const {
    return run_mode({.flags = flags, .reads_data = true}, context, eval_run, {from.choice()});
  }
};

}  // namespace

std::unique_ptr<Command> eval_command() { return command_of<Eval>(); }

}  // namespace tessera
