// SPDX-License-Identifier: Apache-2.0
// A plan as text (plan.txt, --mode=plan) and as JSON (plan.json; docs/formats.md).
#pragma once

#include <filesystem>
#include <string>

#include "tasks/plan/plan.h"

namespace tessera {

std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);
// One line for the start of a run.
std::string plan_summary(const Plan& plan);
// Writes plan.txt and plan.json.
void write_plan_files(const std::filesystem::path& run_directory, const Plan& plan);

}  // namespace tessera
