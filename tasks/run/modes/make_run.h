// SPDX-License-Identifier: Apache-2.0
// Where a run's inputs write: to its directory, or in a dry run to a temporary one.
#pragma once

#include <functional>
#include <memory>

#include "core/runtime/comm/process_group.h"
#include "tasks/run/run_setting.h"

namespace tessera {

// Calls `make` with the setting and its input_directory, which lives as long as the run.
std::unique_ptr<BaseRun> make_run(
    const RunSetting& setting, ProcessGroup& processes,
    const std::function<std::unique_ptr<BaseRun>(const RunSetting&)>& make);

}  // namespace tessera
