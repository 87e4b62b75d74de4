// SPDX-License-Identifier: Apache-2.0
#include "tests/support/run_with.h"

#include "tasks/run/modes/make_run.h"

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
  Run operator()(const ScoreOptions& o) {
    return score_run(config, setting, o, devices, processes);
  }
  Run operator()(const PlanOptions& o) { return plan_run(config, setting, o, devices, processes); }
  Run operator()(const ImportOptions& o) {
    return import_run(config, setting, o, devices, processes);
  }
  Run operator()(const ExportOptions& o) {
    return export_run(config, setting, o, devices, processes);
  }
};

}  // namespace

std::unique_ptr<BaseRun> make_run(const ExperimentConfig& config, const RunWith& options,
                                  const std::vector<Device*>& devices, ProcessGroup& processes) {
  return make_run(options, processes, [&](const RunSetting& setting) {
    return std::visit(RunOfMode{config, setting, devices, processes}, options.mode);
  });
}

}  // namespace tessera
