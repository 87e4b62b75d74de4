// SPDX-License-Identifier: Apache-2.0
// What changed since the checkpoint that a run resumes from: mesh, configuration and code. Code is
// compared by what a training step of the saved configuration on the saved mesh computes, so that a
// change of either is not taken for one of the code.
#pragma once

#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint.h"
#include "tasks/run/run_setting.h"
#include "tasks/run/train/loop_state.h"

namespace tessera {

// A line for each change; `mesh` is that of this start, `change_note` the line of a changed
// configuration, or "". Error, with the first layer and line that differ, if the code computes
// something else and the setting does not allow that.
std::vector<std::string> check_resume(const CheckpointInfo& info, const LoopState& state,
                                      const std::string& mesh, const std::string& change_note,
                                      const RunSetting& setting);

}  // namespace tessera
