// SPDX-License-Identifier: Apache-2.0
// Live ranges of the buffers of a flat program, and outputs that overwrite dead inputs.
#pragma once

#include "core/passes/schedule/flatten.h"

namespace tessera {

// Places the next value of each state in the memory of the state: in place if no later launch reads
// the old value and the kernel allows it, otherwise by a copy at the end. Other outputs may
// overwrite inputs that are not read later. Sets the live ranges of all buffers.
void write_in_place(FlatProgram& program, const KernelFacts& facts);

}  // namespace tessera
