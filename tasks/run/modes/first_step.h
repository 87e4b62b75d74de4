// SPDX-License-Identifier: Apache-2.0
// A new run whose step 0 has weights that come from elsewhere, for modes that make one: import and
// merge.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/runtime/executor/executor.h"
#include "layers/parameter.h"
#include "tasks/run/directory/run_directory.h"
#include "tasks/run/run_setting.h"
#include "tasks/run/session/model_session.h"

namespace tessera {

class FirstStep {
 public:
  // Locks and prepares the run's directory, or sets an earlier run aside, and allocates what a
  // training step keeps. The data of the run need not exist. Error if the directory contains a run
  // that has started; `verb` says what to do elsewhere: "import into".
  FirstStep(const RunContext& context, std::string_view verb);
  ~FirstStep();

  // Saves step 0: the weights that `fill` sets, and initial state of the learner. A collective
  // call.
  void save(const std::function<void(Executor&, const ParameterTable&)>& fill);

 private:
  class TrainedModel;
  void check_not_begun(std::string_view verb) const;

  const RunSetting setting_;
  ProcessGroup& processes_;
  std::unique_ptr<RunLock> lock_;
  std::string hparams_toml_;
  std::unique_ptr<RunGuard> guard_;  // Null in a dry run.
  std::unique_ptr<TrainedModel> session_;
};

}  // namespace tessera
