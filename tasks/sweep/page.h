// SPDX-License-Identifier: Apache-2.0
// sweep.html: the trials of a sweep as a plot with parallel coordinates (Inselberg, 1985) and as a
// table. One file without scripts and without references to others, for light and dark screens.
#pragma once

#include <string>

#include "tasks/sweep/journal.h"

namespace tessera {

std::string sweep_page(const SweepRecord& record);

}  // namespace tessera
