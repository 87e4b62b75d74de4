// SPDX-License-Identifier: Apache-2.0
// The changes between two plans of a step: memory, bytes sent and predicted time, by line of layer
// code; --mode=plan --compare_plan=OTHER.
#pragma once

#include <string>

#include "core/io/json.h"

namespace tessera {

// Markdown tables, for a pull request. Both are the content of a plan.json. Lines of code move from
// version to version: lines that only one plan has are paired if layer, phase and op are the same.
std::string plan_comparison(const Json& before, const Json& now);

}  // namespace tessera
