// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/recipe.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/region.h"
#include "core/compile/remat/remat.h"
#include "core/graph/type.h"
#include "inputs/checked_input.h"
#include "tasks/task/base_task.h"

namespace tessera {
namespace {

constexpr std::string_view kExpertsAxis = "experts";

// Policies that Pax's recipes use; which of them differ depends on the model.
constexpr std::string_view kPolicies[] = {
    "save_everything",   "save_dot_only", "save_dot_except_logits_ffn1",
    "save_qkv_out_proj", "save_out_proj", "save_context_and_out_proj",
    "save_nothing"};

Type unsplit(Type type) {
  for (Axis& axis : type.axes) axis.split.clear();
  return type;
}

// The parameters, and the state whose name ends with a parameter's path.
std::vector<Parameter> stored_arrays(const Graph& traced, const ParameterTable& table) {
  std::vector<Parameter> arrays;
  for (const GraphInput& input : traced.inputs()) {
    const Parameter* like = nullptr;
    if (input.kind == InputKind::kParameter) like = table.find(input.name);
    if (input.kind == InputKind::kState) {
      for (const Parameter& each : table.parameters())
        if (input.name.ends_with("/" + each.path)) like = &each;
    }
    if (like == nullptr) continue;
    arrays.push_back(*like);
    arrays.back().type = unsplit(traced.type(input.value));
  }
  return arrays;
}

std::vector<std::string> distinct_policies(const Graph& traced, const std::string& first) {
  std::vector<std::string> policies = {first}, distinct;
  policies.insert(policies.end(), std::begin(kPolicies), std::end(kPolicies));
  std::set<std::string> known;  // What they save, as a text.
  for (const std::string& policy : policies) {
    std::vector<SavedValue> saved;
    rematerialize(traced, parse_remat_policy(policy), &saved);
    std::string text;
    for (const SavedValue& value : saved)
      text += fmt::format("{} {} {}\n", value.name, value.path, value.type.text_sized());
    if (known.insert(text).second) distinct.push_back(policy);
  }
  return distinct;
}

}  // namespace

Recipe read_recipe(ExperimentConfig config, int64_t devices) {
  Recipe recipe;
  const Mesh mesh = planned_mesh(config.mesh, devices);
  recipe.devices = mesh.num_devices();
  recipe.slices = element_count(config.mesh.dcn_mesh_shape);
  const std::unique_ptr<BaseTask> task = config.task.instantiate();
  const std::unique_ptr<BaseInput> input = make_input(config.input);
  recipe.global_batch = input->global_batch_size();
  recipe.seq_len = sequence_length(*input);
  recipe.microbatches = task->train().num_microbatches;
  recipe.remat_policy = task->train().remat_policy;
  recipe.has_schedule = task->train().pipeline_schedule.has();
  int64_t stacks = 0;
  std::string stack_of;
  for (const Parameter& each : task->model().parameters().parameters()) {
    recipe.has_experts = recipe.has_experts || each.type.has(kExpertsAxis);
    if (each.stack == 0) continue;
    recipe.layers = each.stack;
    const std::string owner = each.path.substr(0, each.path.find("[]"));
    if (owner != stack_of) ++stacks;
    stack_of = owner;
  }
  recipe.has_stack = stacks == 1;
  std::vector<MeshAxis> single;
  for (const MeshAxis& axis : mesh.axes()) single.push_back({axis.name, 1, 1});
  const Graph traced = task->train_graph(
      {Mesh(std::move(single)), make_rules(config.rules), global_specification(*input)});
  recipe.stored = stored_arrays(traced, task->model().parameters());
  recipe.remat_policies = distinct_policies(traced, recipe.remat_policy);
  recipe.config = std::move(config);
  return recipe;
}

SmallerState find_smaller_state(const Configure& configure, const Recipe& recipe) {
  SmallerState smaller;
  for (const char* moment : {"first_moment", "second_moment"}) {
    const std::string setting = std::string("task.learner.optimizer_tpl.state.") + moment + "=bf16";
    try {
      configure({setting}).task.instantiate();
      smaller.settings.push_back(setting);
    } catch (const Error&) {
      // The optimizer does not store this moment.
    }
  }
  if (smaller.settings.empty()) return {};
  smaller.stored = read_recipe(configure(smaller.settings), recipe.devices).stored;
  const auto bytes = [](const std::vector<Parameter>& arrays) {
    int64_t sum = 0;
    for (const Parameter& array : arrays) sum += array.type.bytes();
    return sum;
  };
  return bytes(smaller.stored) < bytes(recipe.stored) ? smaller : SmallerState{};
}

}  // namespace tessera
