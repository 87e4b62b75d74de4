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
  std::vector<std::string> batch, seq, residual_seq, heads, mlp, vocab, context, experts;
  std::vector<std::string> weight_embed, weight_heads, weight_kv_heads, weight_mlp, weight_vocab,
      weight_positions, weight_experts;
};

using RuleList = std::vector<std::string> RuleParts::*;

// A mesh axis in this role is in these lists.
struct Role {
  std::string_view name;
  std::vector<RuleList> lists;
};
// The last one is kRandomRole: the composition's seed chooses the lists of an axis, and the order
// of axes in a list and of the rules.
inline constexpr std::string_view kRandomRole = "random";
const std::vector<Role>& roles();
const Role& role(std::string_view name);  // Error with the nearest name.

struct ScheduleRow {
  std::string_view name;
  int64_t chunks;         // Pieces of a stage.
  bool takes_any_number;  // Any number of microbatches; else a multiple of the stages.
  Template<PipelineSchedule> schedule;
};
const std::vector<ScheduleRow>& schedules();
const ScheduleRow& schedule(std::string_view name);  // Error with the nearest name.

// The axes replica, data and mdl take the composition's axes, in order; `stage` comes before them.
Mesh mesh_of(const Composition& composition);
AxisRules rules_of(const Composition& composition, const ModelParts& parts);

}  // namespace tessera
