// SPDX-License-Identifier: Apache-2.0
// Checks each trial of a sweep before the first one starts: whether it could start, how far its run
// is, and what it logs. Nothing is allocated or written.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/io/file.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/log/jsonl_writer.h"
#include "tasks/run/modes/plan_run.h"
#include "tasks/run/session/metric_outputs.h"
#include "tasks/run/train/train_session.h"
#include "tasks/sweep/trial_record.h"
#include "tasks/task/config/mesh_config.h"

namespace tessera {
void check_trial(const RunContext& context, TrialRecord* record) {
  const RunSetting& setting = context.setting;
  if (setting.devices > 0) make_mesh(context.config.mesh, setting.devices);
  RunSetting plan = setting;
  plan.verbosity = Verbosity::kSilent;
  plan.devices = std::max<int64_t>(1, plan.devices);
  plan_run({context.config, plan, context.devices, context.processes}, {});
  RunSetting only_compares = setting;
  only_compares.dry_run = true;
  const std::string text = prepare_config(context.config, only_compares);
  const std::filesystem::path stored = setting.job_log_dir / "hparams.toml";
  if (setting.restart || !std::filesystem::exists(stored)) return;
  const LogEnd end = end_of_log(setting.job_log_dir);
  record->state = TrialState::kInterrupted;
  if (end.event == "failed") {
    record->state = TrialState::kFailed;
    record->reason = fmt::format("failed at step {}: {}", end.step, end.reason);
  } else if (end.event == "done" && text == read_file(stored)) {
    record->state = TrialState::kDone;  // A run that is only extended gets another text.
  }
}

std::vector<std::string> logged_metrics(const RunContext& context) {
  const RunSetting& setting = context.setting;
  Session session(context.config,
                  {.run_directory = setting.job_log_dir,
                   .input_directory = setting.job_log_dir,
                   .devices = setting.devices > 0 ? setting.devices : 1,
                   .allocates = false},
                  context.devices, context.processes);
  std::vector<std::string> names = session.evaluation().metric_names();
  names.emplace_back("loss");
  for (std::string& name :
       MetricOutputs(session.executor(), session.train_program().program()).names())
    if (name != "loss") names.push_back(std::move(name));
  for (const char* name :
       {"grad_norm", "tokens_per_sec", "step_time", "mfu", "input_wait", "skipped"})
    names.emplace_back(name);
  return names;
}

}  // namespace tessera
