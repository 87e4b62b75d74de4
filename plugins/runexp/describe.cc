// SPDX-License-Identifier: Apache-2.0
// --describe: an experiment's knobs and configuration, and who set what. It takes all flags of a
// training run, to whose command it may be added.
#include <fmt/ostream.h>

#include "core/hparams/text.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/interop/hf_weights.h"

namespace tessera {
namespace {

struct Describe {
  static constexpr CommandInfo kInfo{
      .flag = "describe",
      .summary = "print the experiment's knobs and configuration, and who set what"};
  bool describe = false;
  TrainFlags train;
  FIELDS(describe, train)

  void check() const { train.check(); }

  CommandResult run(const CommandContext& context) const {
    const ConfiguredExperiment configured = configured_together(train.flags.experiment, context);
    std::ostream& out = context.out;
    fmt::print(out, "{}\n\n", configured.entry.name);
    if (configured.config_file.empty())
      fmt::print(out, "Knobs\n{}\n", tessera::describe(configured.knobs));
    fmt::print(out, "Configuration\n{}", tessera::describe(configured.config_tree()));
    try {
      const std::unique_ptr<BaseTask> task = configured.config.task.instantiate();
      const MultiOptimizer& optimizers = task->learner().multi_optimizer();
      fmt::print(out, "\n{}", optimizers.rates_text(task->train().num_train_steps));
      const std::string widths = task->learner().widths_text(task->model().parameters());
      if (!widths.empty()) fmt::print(out, "\n{}", widths);
    } catch (const std::exception& error) {
      fmt::print(out, "\nnote: such a task cannot run: {}\n", error.what());
    }
    if (const std::string note = export_note(configured.config, NoteLength::kWhole); !note.empty())
      fmt::print(out, "\n{}\n", note);
    return check_printed();
  }
};

}  // namespace

std::unique_ptr<Command> describe_command() { return command_of<Describe>(); }

}  // namespace tessera
