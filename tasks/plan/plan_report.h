// SPDX-License-Identifier: Apache-2.0
// A plan as text for people (plan.txt, --mode=plan) and as JSON for programs (plan.json); what its
// members mean is in docs/formats.md.
#pragma once

#include <filesystem>
#include <string>

#include "tasks/plan/plan.h"

namespace tessera {

std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);
// One line of it, for the start of a run.
std::string plan_summary(const Plan& plan);
// Writes plan.txt, plan.json and graph.svg, a drawing of the training step as traced.
void write_plan_files(const std::filesystem::path& run_directory, const Plan& plan,
                      const Graph& traced);

}  // namespace tessera
