// SPDX-License-Identifier: Apache-2.0
// The second process of --mode=replay --against=…: its command, and the kernels that it shares with
// this one.
#pragma once

#include "plugins/command_line.h"
#include "tasks/replay/replay.h"

namespace tessera {

// Error if the other kind of device, processor level or program does not exist.
ReplaySetting replay_setting(const CommandLine& line, const ReplayOptions& replay);

}  // namespace tessera
