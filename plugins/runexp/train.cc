// SPDX-License-Identifier: Apache-2.0
// --mode=train, the default.
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/interop/hf_weights.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/train/trainer.h"

namespace tessera {
namespace {

// The steps that a run traces of its own accord, for its report: late enough that memory and caches
// are warm. None in a short run, where writing the trace would take a considerable part of the
// time, or in a resumed one. All processes trace the same steps.
std::optional<ProfileWindow> early_steps(const JobParts& parts) {
  constexpr ProfileWindow kEarly{.start = 10, .steps = 2};
  constexpr int64_t kFewestSteps = 50;
  const RunSetting& setting = parts.setting;
  const bool is_long = num_train_steps(parts.configured.config_tree()) >= kFewestSteps;
  if (setting.dry_run || !is_long) return std::nullopt;
  const bool is_new = setting.restart || !run_has_begun(setting.job_log_dir);
  const std::string traces =
      parts.processes.broadcast(is_new ? "yes" : "", "whether to trace steps");
  return traces.empty() ? std::nullopt : std::optional(kEarly);
}

struct Train {
  static constexpr CommandInfo kInfo{.mode = "train",
                                     .summary = "train, or resume where the run stopped (default)"};
  TrainFlags train;
  FIELDS(train)

  void check() const { train.check(); }

  CommandResult run(const CommandContext& context) const {
    const ExperimentJob job{.flags = train.flags,
                            .resume = train.resume,
                            .reads_data = true,
                            .trains = true,
                            .writes = true,
                            .advises_mesh = true};
    return run_experiment(job, context, [this](const JobParts& parts) {
      const TrainOptions options{
          .falls_back = !train.checkpoint.empty(),
          .dump_graph = train.dump_graph,
          .profile = train.profile.empty() ? early_steps(parts) : train.profile_window(),
          .inspect_interval_steps = train.inspect.value_or(0),
          .launch_costs = shared_launch_costs(train.launch_costs, parts.processes),
          .note = export_note(parts.config, NoteLength::kBrief)};
      return train_run(parts, options);
    });
  }
};

}  // namespace

std::unique_ptr<Command> train_command() { return command_of<Train>(); }

}  // namespace tessera
