// SPDX-License-Identifier: Apache-2.0
// The state of an input as a checkpoint keeps it: what the processes know of their own rows, put
// together, so that any number of processes can go on from it.
#pragma once

#include "core/runtime/comm/process_group.h"
#include "inputs/base_input.h"

namespace tessera {

// All processes call it, and get the same. The position is the furthest: a process whose rows have
// ended before those of others counts no more. Error if they know different things by one name.
InputState merged_input_states(const InputState& mine, ProcessGroup& processes);

}  // namespace tessera
