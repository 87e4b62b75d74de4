// SPDX-License-Identifier: Apache-2.0
// Which candidates of --search are near each other, so that a search may go from a good one to
// better ones.
#pragma once

#include "tasks/search/space.h"

namespace tessera {

// Whether two candidates differ only in how the devices work on the same layout (microbatches,
// schedule, remat policy), or only in the strategy, or in a factor that moves from one mesh axis to
// another.
bool are_neighbours(const Candidate& a, const Candidate& b);

}  // namespace tessera
