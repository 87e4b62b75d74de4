// SPDX-License-Identifier: Apache-2.0
// The results of an evaluation as a table: a line for each dataset, source and tag.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tasks/eval/evaluation.h"
#include "tasks/logging/console.h"

namespace tessera {

// The table's lines from the metrics of an EvalReport; empty if the report has no metrics.
std::vector<std::string> eval_table(int64_t step, const std::map<std::string, double>& metrics);

// Prints the table and the report's remarks.
void print_evaluation(int64_t step, const EvalReport& report, Console* console);

}  // namespace tessera
