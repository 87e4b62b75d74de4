// SPDX-License-Identifier: Apache-2.0
// What a simulated step says beside its launches: exposed communication, bubbles, memory over time,
// and the time and cost of the whole run.
#pragma once

#include <cstdint>
#include <string>

#include "core/io/json.h"
#include "tasks/planner/prediction.h"

namespace tessera {

// Rows of at most 100 columns, at most 20 of them.
std::string timeline_text(const Prediction& prediction);
// "whole run", "cost" of a prediction's last lines, if they are known.
std::string run_text(const Prediction& prediction, int64_t devices);

// Adds these members to a prediction in plan.json (docs/formats.md).
void add_timeline_json(JsonLine& json, const Prediction& prediction, int64_t devices);

}  // namespace tessera
