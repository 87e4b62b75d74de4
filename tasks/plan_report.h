// SPDX-License-Identifier: Apache-2.0
// What a step will cost, known before it is taken: parameters, FLOPs, memory by class and
// communication, as plan.txt for people and plan.json for programs.
#pragma once

#include <filesystem>
#include <string>

#include "tasks/session.h"

namespace tessera {

std::string plan_text(Session& session);
std::string plan_json(Session& session);
// One line of it, for the start of a run.
std::string plan_summary(Session& session);
// plan.txt, plan.json and graph.svg of the training step.
void write_plan_files(const std::filesystem::path& run_directory, Session& session);

}  // namespace tessera
