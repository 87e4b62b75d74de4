// SPDX-License-Identifier: Apache-2.0
// --mode=eval: scores checkpoints of a run, which may be training at the same time. It reads the
// run's directory without a lock and writes eval_out/ there. Evaluation during training uses the
// same code (tasks/run/eval/evaluation.h). The exit code is 0 also when a signal stopped it. Error,
// after everything is scored, if a loss was not finite.
#pragma once

#include <memory>

#include "tasks/run/run_setting.h"

namespace tessera {

struct EvalOptions {
  CheckpointChoice checkpoint;
};

std::unique_ptr<BaseRun> eval_run(const RunContext& context, const EvalOptions& options);

}  // namespace tessera
