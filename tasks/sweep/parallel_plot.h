// SPDX-License-Identifier: Apache-2.0
// A plot with parallel coordinates (Inselberg, 1985) as SVG: an axis for each setting that varies
// and one for the metric; a line for each trial, which is the darker the better the trial is.
#pragma once

#include <string>

#include "tasks/sweep/journal.h"

namespace tessera {

// The element <svg>, in the colours of the page's variables --ink, --faint, --best and --worst.
// Lines of trials without a value of the metric end before its axis, dashed.
std::string parallel_plot(const SweepRecord& record);

}  // namespace tessera
