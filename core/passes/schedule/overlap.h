// SPDX-License-Identifier: Apache-2.0
// Overlap of communication with computation: where each collective of a step starts and where its
// result is waited for. No result depends on these decisions.
#pragma once

#include "core/passes/schedule/flatten.h"

namespace tessera {

// Splits every collective into a start and a wait (LaunchKind). Collectives run one after another
// in the order of their starts, so a collective may read the result of an earlier one without a
// wait.
//
// A wait precedes the first other launch that uses the result. All-gathers of weights, with the
// casts before them, are prefetched up to one layer's gathered bytes ahead (as in FSDP). Other
// collectives, mainly reductions of gradients, start as soon as their operands are computed; the
// oldest are waited for when more than one layer's bytes would be in flight. These limits bound the
// additional memory.
void overlap(FlatProgram& program);

}  // namespace tessera
