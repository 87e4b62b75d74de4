// SPDX-License-Identifier: Apache-2.0
// Where a run goes on from: its newest checkpoint, or, if the user asks for it, the newest that is
// not damaged. All processes of the run go on from the same.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "core/runtime/comm/process_group.h"
#include "core/runtime/executor/executor.h"

namespace tessera {

enum class OnDamage {
  kFail,
  kFallBack,          // Go on from the one before, and set the damaged ones aside.
  kFallBackReadOnly,  // The same, but leave them where they are (a dry run).
};

struct RestoredState {
  CheckpointInfo info;
  int64_t damaged = 0;  // Newer checkpoints that were passed over.
};

// Reads the state into the executor; nothing if there is no checkpoint. `say` is told what was
// passed over, and why. Error if all are damaged, or if one does not suit the model.
std::optional<RestoredState> restore_newest(Executor& executor, const CheckpointStore& store,
                                            ProcessGroup& processes, OnDamage on_damage,
                                            const std::function<void(const std::string&)>& say);

}  // namespace tessera
