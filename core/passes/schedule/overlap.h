// SPDX-License-Identifier: Apache-2.0
// Communication beside compute: where each collective of a step starts and where it is waited for.
// A decision about time and memory alone; no result depends on it. It runs nothing.
#pragma once

#include "core/passes/schedule/flatten.h"

namespace tessera {

// Splits every collective into a start and a wait (LaunchKind). Starts are carried out one after
// another in their order, so that one may read what an earlier one gives without a wait between.
//
// A wait stands before the first other launch that reads the result. Gathers of weights start up to
// one layer's worth of gathered bytes ahead, the casts they need with them. Other collectives,
// gradients' above all, start as soon as their operands are there, and are waited for early only
// where more than a layer's worth of them would be under way. So memory grows by no more than that.
void overlap(FlatProgram& program);

}  // namespace tessera
