// SPDX-License-Identifier: Apache-2.0
#include "tests/support/run_with.h"

#include "tasks/run/directory/run_directory.h"

namespace tessera {
namespace {

struct RunOfMode {
  const RunContext& context;

  using Run = std::unique_ptr<BaseRun>;
  Run operator()(const TrainOptions& o) { return train_run(context, o); }
  Run operator()(const EvalOptions& o) { return eval_run(context, o); }
  Run operator()(const DecodeOptions& o) { return decode_run(context, o); }
  Run operator()(const ScoringOptions& o) { return score_run(context, o); }
  Run operator()(const PlanOptions& o) { return plan_run(context, o); }
  Run operator()(const ImportOptions& o) { return import_run(context, o); }
  Run operator()(const ExportOptions& o) { return export_run(context, o); }
  Run operator()(const MergeOptions& o) { return merge_run(context, o); }
};

}  // namespace

std::unique_ptr<BaseRun> make_run(const ExperimentConfig& config, const RunWith& options,
                                  const std::vector<Device*>& devices, ProcessGroup& processes) {
  return make_run(options, processes, [&](const RunSetting& setting) {
    return std::visit(RunOfMode{{config, setting, devices, processes}}, options.mode);
  });
}

}  // namespace tessera
