// SPDX-License-Identifier: Apache-2.0
// The roles of mesh axes and the pipeline schedules that compositions combine; a row of meshes.cc
// each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/mesh.h"
#include "core/graph/rules.h"
#include "tasks/task/pipeline_schedules.h"
#include "tests/composition/composition.h"

namespace tessera {

struct ModelParts;

// Mesh axes by logical axis, as roles fill them in.
struct RuleParts {
  std::vector<std::string> batch, seq, residual_seq, width, vocab, context, experts;
  std::vector<std::string> weight_embed, weight_width, weight_experts;
};

using RuleList = std::vector<std::string> RuleParts::*;

// A mesh axis in this role is in these lists.
struct Role {
  std::string_view name;
  std::vector<RuleList> lists;
};
const std::vector<Role>& roles();
const Role& role(std::string_view name);  // Error with the nearest name.

struct ScheduleRow {
  std::string_view name;
  int64_t chunks;  // Pieces of a stage.
  Template<PipelineSchedule> schedule;
};
const std::vector<ScheduleRow>& schedules();
const ScheduleRow& schedule(std::string_view name);  // Error with the nearest name.

// The axes replica, data and mdl take the composition's axes, in order; `stage` comes before them.
Mesh mesh_of(const Composition& composition);
AxisRules rules_of(const Composition& composition, const ModelParts& parts);

}  // namespace tessera
