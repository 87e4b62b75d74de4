// SPDX-License-Identifier: Apache-2.0
// Helpers of tests that run a mode: the settings of all runs, and the options of the mode.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "tasks/interop/export.h"
#include "tasks/interop/import.h"
#include "tasks/run/modes/modes.h"
#include "tasks/run/train/trainer.h"

namespace tessera {

using ModeOptions = std::variant<TrainOptions, EvalOptions, DecodeOptions, ScoringOptions,
                                 PlanOptions, ImportOptions, ExportOptions, MergeOptions>;

struct RunWith : RunSetting {
  ModeOptions mode = TrainOptions{};

  // Sets the options of the mode that is run.
  template <typename Options>
  Options& of_mode() {
    if (!std::holds_alternative<Options>(mode)) mode = Options{};
    return std::get<Options>(mode);
  }
};

// Makes the run as runexp does (tasks/run/directory/run_directory.h).
std::unique_ptr<BaseRun> make_run(const ExperimentConfig& config, const RunWith& options,
                                  const std::vector<Device*>& devices, ProcessGroup& processes);

}  // namespace tessera
