// SPDX-License-Identifier: Apache-2.0
// The trials of a sweep as a table of text.
#pragma once

#include <string>

#include "tasks/sweep/trial_record.h"

namespace tessera {

// One line for each trial, complete ones first by their final value, the best one on top, and below
// the reasons of failed ones. What does not fit into 100 columns follows in another table.
std::string trial_table(const SweepRecord& record);

// "0.2134", "1.204e-05": six significant digits.
std::string metric_text(double value);

}  // namespace tessera
