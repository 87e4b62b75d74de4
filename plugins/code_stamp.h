// SPDX-License-Identifier: Apache-2.0
// The code of a run, as its checkpoints and its log name it.
#pragma once

#include "plugins/registry.h"
#include "tasks/run/run_setting.h"

namespace tessera {

// This build, the loaded plugins (among our own only the experiment's) and the git revision of the
// repository that holds the experiment's plugin.
CodeStamp code_stamp(const ExperimentEntry& entry);

}  // namespace tessera
