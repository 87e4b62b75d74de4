// SPDX-License-Identifier: Apache-2.0
// The trials of a sweep as a table of text.
#pragma once

#include <string>

#include "tasks/sweep/trial_record.h"

namespace tessera {

// One line for each trial in the order of ranked(), and below it the reasons of failed ones. At
// most 100 columns wide, for which settings may be left out; a line then says so. Ends with a
// newline.
std::string trial_table(const SweepRecord& record);

// "0.2134", "1.204e-05": six significant digits.
std::string metric_text(double value);

}  // namespace tessera
