// SPDX-License-Identifier: Apache-2.0
#include "plugins/runexp/train.h"

#include "core/base/error.h"
#include "plugins/runexp/commands.h"
#include "plugins/runexp/experiment_run.h"
#include "tasks/run_directory/run_config.h"

namespace tessera {
namespace {

// nullopt if none is asked for.
std::optional<ProfileWindow> parse_profile(const std::string& text) {
  if (text.empty() || text == "off") return std::nullopt;
  const size_t colon = text.find(':');
  if (colon == std::string::npos)
    fail("--profile={}: expected START:N, such as 10:3, or off", text);
  return ProfileWindow{whole_number("profile", text.substr(0, colon), 0),
                       whole_number("profile", text.substr(colon + 1), 1)};
}

// The steps that a run traces of its own accord, for its report: late enough that memory and caches
// are warm. None of a short run, of which writing the trace would be a considerable part, or of one
// that is resumed. All processes trace the same steps.
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

}  // namespace

void Train::check() const {
  flags.check();
  parse_profile(profile);
  if (!checkpoint.empty() && checkpoint != "auto-fallback")
    fail(
        "--checkpoint={}: --mode=train takes only auto-fallback; others need --mode=eval, decode, "
        "export or replay",
        checkpoint);
}

Ending Train::run(const CommandContext& context) const {
  const ExperimentJob job{
      .flags = flags, .resume = resume, .reads_data = true, .trains = true, .advises_mesh = true};
  return run_experiment(job, context, [this](const JobParts& parts) {
    const TrainOptions options{
        .falls_back = !checkpoint.empty(),
        .dump_graph = dump_graph,
        .profile = profile.empty() ? early_steps(parts) : parse_profile(profile),
        .inspect_interval_steps = inspect.value_or(0),
        .launch_costs = shared_launch_costs(launch_costs, parts.processes)};
    return make_run(parts.configured.config, parts.setting, options, parts.devices,
                    parts.processes);
  });
}

std::unique_ptr<Command> train_command() { return command_of<Train>(); }

}  // namespace tessera
