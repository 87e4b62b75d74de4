// SPDX-License-Identifier: Apache-2.0
#include "tasks/modes/make_run.h"

#include "tasks/modes/import.h"
#include "tasks/run_directory/run_directory.h"
#include "tasks/train/trainer.h"

namespace tessera {
namespace {

std::unique_ptr<BaseRun> run_of_mode(const ExperimentConfig& config, const RunOptions& options,
                                     const std::vector<Device*>& devices, ProcessGroup& processes) {
  switch (options.mode) {
    case RunMode::kDecode:
      return decode_run(config, options, devices, processes);
    case RunMode::kExport:
      return export_run(config, options, processes);
    case RunMode::kImport:
      return import_run(config, options, devices, processes);
    case RunMode::kEval:
      return eval_run(config, options, devices, processes);
    case RunMode::kTrain:
    case RunMode::kPlan:
      break;
  }
  return train_run(config, options, devices, processes);
}

// A dry run's inputs write to a temporary directory, which lives as long as the run.
class DryRun final : public BaseRun {
 public:
  DryRun(const ExperimentConfig& config, const RunOptions& options,
         const std::vector<Device*>& devices, ProcessGroup& processes)
      // With --restart the run would not see what is in its directory.
      : scratch_(options.restart ? "" : options.job_log_dir, processes) {
    RunOptions with_scratch = options;
    with_scratch.input_directory = scratch_.path();
    run_ = run_of_mode(config, with_scratch, devices, processes);
  }
  int run() override { return run_->run(); }

 private:
  ScratchDirectory scratch_;
  std::unique_ptr<BaseRun> run_;
};

}  // namespace

std::unique_ptr<BaseRun> make_run(const ExperimentConfig& config, const RunOptions& options,
                                  const std::vector<Device*>& devices, ProcessGroup& processes) {
  if (options.dry_run && options.mode != RunMode::kPlan)
    return std::make_unique<DryRun>(config, options, devices, processes);
  RunOptions in_place = options;
  in_place.input_directory = options.job_log_dir;
  return run_of_mode(config, in_place, devices, processes);
}

}  // namespace tessera
