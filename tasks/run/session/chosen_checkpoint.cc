// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/session/chosen_checkpoint.h"

#include <optional>
#include <string>

#include "core/base/error.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/session/model_state.h"

namespace tessera {

ChosenCheckpoint::ChosenCheckpoint(const RunSetting& setting, const CheckpointChoice& choice,
                                   std::string_view to_do, ProcessGroup& processes)
    : store_(setting.job_log_dir / "checkpoints") {
  int64_t step = choice.step;
  if (processes.is_first()) {
    const std::optional<int64_t> newest = store_.newest();
    if (!newest)
      fail("{} holds no checkpoint to {}; train first", store_.directory().string(), to_do);
    if (choice.kind != CheckpointChoice::Kind::kStep) step = *newest;
  }
  step_ = processes.all_reduce_max(step, "the checkpoint to read");
}

void ChosenCheckpoint::restore(ModelSession& session, const ExperimentConfig& config,
                               Console& console) const {
  const Checkpoint checkpoint = store_.open(step_);
  if (const std::string note = note_of_model_change(checkpoint.info().hparams, config, step_);
      !note.empty())
    console.info(note);
  restore_state(session.executor(), session.task().model().parameters(), checkpoint);
  session.processes().barrier("the weights of a checkpoint");
}

}  // namespace tessera
