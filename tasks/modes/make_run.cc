// SPDX-License-Identifier: Apache-2.0
#include "tasks/modes/make_run.h"

#include "tasks/run_directory/run_directory.h"

namespace tessera {
namespace {

struct RunOfMode {
  const ExperimentConfig& config;
  const RunSetting& setting;
  const std::vector<Device*>& devices;
  ProcessGroup& processes;

  using Run = std::unique_ptr<BaseRun>;
  Run operator()(const TrainOptions& o) {
    return train_run(config, setting, o, devices, processes);
  }
  Run operator()(const EvalOptions& o) { return eval_run(config, setting, o, devices, processes); }
  Run operator()(const DecodeOptions& o) {
    return decode_run(config, setting, o, devices, processes);
  }
  Run operator()(const PlanOptions& o) { return plan_run(config, setting, o, devices, processes); }
  Run operator()(const ImportOptions& o) {
    return import_run(config, setting, o, devices, processes);
  }
  Run operator()(const ExportOptions& o) { return export_run(config, setting, o, processes); }
};

// A dry run's inputs write to a temporary directory, which lives as long as the run.
class DryRun final : public BaseRun {
 public:
  DryRun(const ExperimentConfig& config, RunSetting setting, const ModeOptions& options,
         const std::vector<Device*>& devices, ProcessGroup& processes)
      // With --restart the run would not see what is in its directory.
      : scratch_(setting.restart ? "" : setting.job_log_dir, processes) {
    setting.input_directory = scratch_.path();
    run_ = std::visit(RunOfMode{config, setting, devices, processes}, options);
  }
  int run() override { return run_->run(); }

 private:
  ScratchDirectory scratch_;
  std::unique_ptr<BaseRun> run_;
};

}  // namespace

std::unique_ptr<BaseRun> make_run(const ExperimentConfig& config, const RunSetting& setting,
                                  const ModeOptions& options, const std::vector<Device*>& devices,
                                  ProcessGroup& processes) {
  if (setting.dry_run && !std::holds_alternative<PlanOptions>(options))
    return std::make_unique<DryRun>(config, setting, options, devices, processes);
  RunSetting in_place = setting;
  in_place.input_directory = setting.job_log_dir;
  return std::visit(RunOfMode{config, in_place, devices, processes}, options);
}

}  // namespace tessera
