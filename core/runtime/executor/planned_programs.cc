// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/planned_programs.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

// Placements by name, for each arena.
using PlacementsByName = std::vector<std::unordered_map<std::string_view, const Placement*>>;

template <typename InArena>
PlacementsByName by_name(size_t arenas, const InArena& placements_in) {
  PlacementsByName result(arenas);
  for (size_t arena = 0; arena < arenas; ++arena)
    for (const Placement& placement : placements_in(arena))
      result[arena].emplace(placement.name, &placement);
  return result;
}

std::unordered_map<std::string, size_t> numbers_of(const std::vector<Buffer>& buffers) {
  std::unordered_map<std::string, size_t> numbers;
  for (size_t i = 0; i < buffers.size(); ++i) numbers.emplace(buffers[i].name, i);
  return numbers;
}

std::string stages_text(const std::vector<int64_t>& stages) {
  if (stages.empty()) return "all stages";
  return fmt::format("{} {}", stages.size() == 1 ? "stage" : "stages", fmt::join(stages, ", "));
}

// Returns the stages that hold an input; empty: all.
std::vector<int64_t> stages_of(const StageHomes& homes, const std::string& input, int64_t stages) {
  const auto found = homes.find(input);
  if (found == homes.end() || std::ssize(found->second) == stages) return {};
  CHECK(!found->second.empty(), "no stage holds '{}'", input);
  return found->second;
}

std::vector<int64_t> either(const std::vector<int64_t>& a, const std::vector<int64_t>& b,
                            int64_t stages) {
  if (a.empty() || b.empty()) return {};
  std::vector<int64_t> all;
  std::ranges::set_union(a, b, std::back_inserter(all));
  return std::ssize(all) == stages ? std::vector<int64_t>{} : all;
}

void list_arrays(PlannedProgram& program, const Graph& traced) {
  for (const GraphInput& input : traced.inputs())
    program.inputs.arrays.push_back({input.name, input.kind, traced.type(input.value)});
  for (const GraphOutput& output : traced.outputs()) {
    if (!output.is_update) {
      program.outputs.arrays.push_back({output.name, InputKind::kBatch, traced.type(output.value)});
      continue;
    }
    program.updates.push_back(output.name);
    if (traced.find_input(output.name)->kind == InputKind::kParameter)
      program.writes_parameters = true;
  }
}

}  // namespace

void PlannedPrograms::set_mesh(const Mesh& mesh) {
  CHECK(arenas_.empty() || mesh == mesh_, "programs for two meshes");
  if (!arenas_.empty()) return;
  mesh_ = mesh;
  if (planning_) {
    for (const int64_t device :
         mesh.has(kStageAxis) ? mesh.group(0, {std::string(kStageAxis)}) : std::vector<int64_t>{0})
      arenas_.push_back({.stage = mesh.stage_of(device), .device = device});
    arena_of_.assign(parts_.size(), 0);
    return;
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    const int64_t device = parts_[i]->number(), stage = mesh.stage_of(device);
    const auto known = std::ranges::find(arenas_, stage, &StageArena::stage);
    arena_of_.push_back(static_cast<size_t>(known - arenas_.begin()));
    if (known == arenas_.end()) arenas_.push_back({.stage = stage, .device = device, .part = i});
  }
}

int PlannedPrograms::add(const Graph& traced, const GraphOfDevice& graph_of,
                         Communication communication, const LaunchSeconds& seconds,
                         std::vector<SavedValue> saved) {
  CHECK(!arenas_.empty(), "set_mesh() comes before add()");
  PlannedProgram program;
  program.saved = std::move(saved);
  list_arrays(program, traced);
  plan_stages(program, graph_of, communication, seconds);
  add_buffers(program, traced);
  programs_.push_back(std::move(program));
  const auto number = static_cast<int>(programs_.size()) - 1;
  check_updates();
  add_copies();
  for (size_t arena = 0; arena < arenas_.size(); ++arena) {
    int64_t above = 0;
    for (const PlannedProgram& each : programs_)
      above = std::max(above, each.plans[arena].arena_bytes - each.plans[arena].persistent_bytes);
    arenas_[arena].bytes = arenas_[arena].persistent_bytes + above;
  }
  return number;
}

void PlannedPrograms::plan_stages(PlannedProgram& program, const GraphOfDevice& graph_of,
                                  Communication communication, const LaunchSeconds& seconds) {
  program.plans.resize(arenas_.size());
  program.graphs.resize(parts_.size());
  std::vector<StageHomes> homes(arenas_.size());
  const auto plan_stage = [&](size_t arena, Stages shown) {
    const StageArena& it = arenas_[arena];
    DeviceGraph compiled = graph_of(it.device, shown);
    homes[arena] = std::move(compiled.homes);
    program.plans[arena] = plan_memory(std::move(compiled.graph), parts_[it.part]->facts(),
                                       it.placed, communication, seconds);
  };
  // The first device's graph is compiled by the caller's thread, whose errors have context.
  plan_stage(0, Stages::kShown);
  for (size_t arena = 1; planning_ && arena < arenas_.size(); ++arena)
    plan_stage(arena, Stages::kSilent);
  if (parts_.size() > 1) {
    on_all_([&](const DeviceExecutor& part, size_t i) {
      const size_t arena = arena_of_[i];
      if (arenas_[arena].part != i) {
        program.graphs[i] =
            std::make_shared<const Graph>(graph_of(part.number(), Stages::kSilent).graph);
      } else if (arena > 0) {
        plan_stage(arena, Stages::kSilent);
      }
    });
  }
  for (size_t i = 0; i < parts_.size(); ++i)
    if (!program.graphs[i]) program.graphs[i] = program.plans[arena_of_[i]].graph;
  for (const StageHomes& each : homes)
    CHECK(each == homes[0], "stages disagree on which stages hold the inputs");
  program.homes = std::move(homes[0]);
}

// Adds a program's buffers. The list is equal in all processes, because it follows from the traced
// graphs and the homes.
void PlannedPrograms::add_buffers(const PlannedProgram& program, const Graph& traced) {
  std::unordered_map<std::string, size_t> numbers = numbers_of(buffers_);
  const PlacementsByName inputs = by_name(
      arenas_.size(), [&](size_t arena) -> auto& { return program.plans[arena].inputs; });
  for (const GraphInput& input : traced.inputs()) {
    if (!persists(input.kind)) continue;
    const std::vector<int64_t> stages = stages_of(program.homes, input.name, mesh_.stages());
    const auto [known, is_new] = numbers.try_emplace(input.name, buffers_.size());
    if (is_new) {
      buffers_.push_back({input.name, input.kind, traced.type(input.value), stages});
    } else {
      Buffer& buffer = buffers_[known->second];
      buffer.stages = either(buffer.stages, stages, mesh_.stages());
    }
    for (size_t arena = 0; arena < arenas_.size(); ++arena)
      CHECK(is_home(program.homes, input.name, arenas_[arena].stage) ==
                inputs[arena].contains(input.name),
            "'{}' is on {}, but not as the graph of stage {} has it", input.name,
            stages_text(stages), arenas_[arena].stage);
  }
  for (size_t arena = 0; arena < arenas_.size(); ++arena) place_new(arena, program);
}

// Keeps the places of arrays that an arena has not held before.
void PlannedPrograms::place_new(size_t arena, const PlannedProgram& program) {
  StageArena& it = arenas_[arena];
  const StepProgram& plan = program.plans[arena];
  std::unordered_set<std::string> placed;
  for (const Placement& known : it.placed) placed.insert(known.name);
  for (const Placement& input : plan.inputs)
    if (persists(input.kind) && placed.insert(input.name).second) it.placed.push_back(input);
  it.persistent_bytes = plan.persistent_bytes;
  for (const ProgramArray& output : program.outputs.arrays)
    CHECK(std::ranges::find(plan.outputs, output.name, &Placement::name) != plan.outputs.end(),
          "stage {} lacks the output {}", it.stage, output.name);
}

StageHomes PlannedPrograms::homes() const {
  StageHomes homes;
  for (const Buffer& buffer : buffers_)
    if (!buffer.stages.empty()) homes[buffer.name] = buffer.stages;
  return homes;
}

// Checks that each stage that holds an array updates it too: otherwise it would keep its old value.
void PlannedPrograms::check_updates() const {
  const std::unordered_map<std::string, size_t> numbers = numbers_of(buffers_);
  for (const PlannedProgram& program : programs_) {
    for (const std::string& name : program.updates) {
      const Buffer& buffer = buffers_[numbers.at(name)];
      const std::vector<int64_t> updated = stages_of(program.homes, name, mesh_.stages());
      if (either(updated, buffer.stages, mesh_.stages()) != updated)
        fail("'{}' is updated on {} by one program and read on {} by another", name,
             stages_text(updated), stages_text(buffer.stages));
    }
  }
}

// Adds the program that makes the copies of the last program, if it has any.
void PlannedPrograms::add_copies() {
  PlannedProgram copies;
  for (size_t arena = 0; arena < arenas_.size(); ++arena) {
    const StageArena& it = arenas_[arena];
    std::optional<Graph> graph = graph_of_copies(*programs_.back().plans[arena].graph);
    CHECK(arena == 0 || graph.has_value() == !copies.plans.empty(), "only some stages keep copies");
    if (!graph) continue;
    copies.plans.push_back(plan_memory(std::move(*graph), parts_[it.part]->facts(), it.placed));
  }
  if (copies.plans.empty()) return;
  for (const size_t arena : arena_of_) copies.graphs.push_back(copies.plans[arena].graph);
  programs_.back().copies = static_cast<int>(programs_.size());
  programs_.push_back(std::move(copies));
}

// Moves offsets above the persistent arrays up if later programs have added to those.
void PlannedPrograms::move_up(StepProgram& plan, int64_t persistent_bytes) const {
  const int64_t shift = persistent_bytes - plan.persistent_bytes;
  const auto move = [&](int64_t& offset) {
    if (offset >= plan.persistent_bytes) offset += shift;
  };
  for (Launch& launch : plan.launches) {
    for (int64_t& offset : launch.inputs) move(offset);
    for (int64_t& offset : launch.outputs) move(offset);
    move(launch.scratch);
  }
  for (Placement& input : plan.inputs) move(input.offset);
  for (Placement& output : plan.outputs) move(output.offset);
  plan.arena_bytes += shift;
  plan.persistent_bytes = persistent_bytes;
}

template <typename Array>
std::vector<DeviceOffsets> PlannedPrograms::offsets_of(
    const std::vector<Array>& arrays,
    const std::function<const std::vector<Placement>&(size_t)>& in_arena) const {
  const PlacementsByName placements = by_name(arenas_.size(), in_arena);
  std::vector<DeviceOffsets> offsets;
  for (const Array& array : arrays) {
    DeviceOffsets& own = offsets.emplace_back();
    for (const size_t arena : arena_of_) {
      const auto found = placements[arena].find(array.name);
      own.push_back(found != placements[arena].end() ? std::optional(found->second->offset)
                                                     : std::nullopt);
    }
  }
  return offsets;
}

void PlannedPrograms::place() {
  for (size_t arena = 0; arena < arenas_.size(); ++arena) {
    int64_t peak = 0;
    for (PlannedProgram& program : programs_) {
      move_up(program.plans[arena], arenas_[arena].persistent_bytes);
      peak = std::max(peak, program.plans[arena].arena_bytes);
    }
    CHECK(peak == arenas_[arena].bytes, "stage {}: {} bytes are planned, {} would be allocated",
          arenas_[arena].stage, peak, arenas_[arena].bytes);
  }
  using Placements = const std::vector<Placement>&;
  for (PlannedProgram& program : programs_) {
    program.inputs.offsets = offsets_of(program.inputs.arrays, [&](size_t arena) -> Placements {
      return program.plans[arena].inputs;
    });
    program.outputs.offsets = offsets_of(program.outputs.arrays, [&](size_t arena) -> Placements {
      return program.plans[arena].outputs;
    });
  }
  buffer_offsets_ =
      offsets_of(buffers_, [&](size_t arena) -> Placements { return arenas_[arena].placed; });
}

}  // namespace tessera
