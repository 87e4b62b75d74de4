// SPDX-License-Identifier: Apache-2.0
// The one checkpoint of a run that a mode reads, such as --mode=decode: all processes agree on it.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/run/log/console.h"
#include "tasks/run/run_setting.h"
#include "tasks/run/session/model_session.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

class ChosenCheckpoint {
 public:
  // Process 0 chooses. Error if there is no checkpoint; `to_do` says what it is needed for:
  // "decode with".
  ChosenCheckpoint(const RunSetting& setting, const CheckpointChoice& choice,
                   std::string_view to_do, ProcessGroup& processes);

  int64_t step() const { return step_; }
  // Reads the weights into the session's executor, after that has allocated, and notes on the
  // console whether the model has changed since. A collective call.
  void restore(ModelSession& session, const ExperimentConfig& config, Console& console) const;

 private:
  CheckpointStore store_;
  int64_t step_ = 0;
};

}  // namespace tessera
