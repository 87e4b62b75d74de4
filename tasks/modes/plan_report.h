// SPDX-License-Identifier: Apache-2.0
// A plan as text for people (plan.txt, --mode=plan) and as JSON for programs (plan.json); what its
// members mean is in docs/formats.md.
#pragma once

#include <filesystem>
#include <string>

#include "tasks/modes/plan.h"

namespace tessera {

std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);
// One line of it, for the start of a run.
std::string plan_summary(const Plan& plan);
// plan.txt, plan.json and graph.svg of the training step.
void write_plan_files(const std::filesystem::path& run_directory, Session& session);

}  // namespace tessera
