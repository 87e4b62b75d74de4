// SPDX-License-Identifier: Apache-2.0
// The flags of --mode=calibrate --trace=RUN and of --launch_costs (docs/launch_costs.md).
#pragma once

#include <filesystem>
#include <optional>

#include "core/runtime/comm/process_group.h"
#include "plugins/flags.h"
#include "tasks/hardware/hardware.h"
#include "tasks/launch_costs/launch_costs.h"
#include "tasks/refit/refit.h"

namespace tessera {

// nullopt without --trace. `hardware`: that of --hardware. Error for a flag that the mode does not
// read, without --hardware, and if there is no such trace.
std::optional<RefitOptions> parse_refit(const Flags& flags,
                                        const std::optional<Hardware>& hardware);

// The file that process 0 reads: all processes must schedule alike. nullopt for an empty path.
std::optional<LaunchCosts> shared_launch_costs(const std::filesystem::path& path,
                                               ProcessGroup& processes);

}  // namespace tessera
