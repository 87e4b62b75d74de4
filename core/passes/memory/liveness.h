// SPDX-License-Identifier: Apache-2.0
// When each buffer of a flat program lives, and which results may be written over what they are
// computed from.
#pragma once

#include "core/passes/schedule/flatten.h"

namespace tessera {

// Puts the next value of each state where the state lies, in place if nothing reads the old value
// later and the kernel allows it, else by a copy at the end; lets other results overwrite operands
// that die with them. Sets the lifetimes of all buffers.
void write_in_place(FlatProgram& program, const KernelFacts& facts);

}  // namespace tessera
