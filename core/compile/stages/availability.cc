// SPDX-License-Identifier: Apache-2.0
#include "core/compile/stages/availability.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "core/ops/optimizer.h"
#include "core/ops/repeat.h"

namespace tessera {
namespace {

StageList either(const StageList& a, const StageList& b) {
  StageList result;
  std::ranges::set_union(a, b, std::back_inserter(result));
  return result;
}

StageList both(const StageList& a, const StageList& b) {
  StageList result;
  std::ranges::set_intersection(a, b, std::back_inserter(result));
  return result;
}

}  // namespace

Availability::Availability(const Graph& graph, NodeId loop, const TaskBodies& tasks, int64_t stages)
    : graph_(graph),
      stages_(stages),
      all_(static_cast<size_t>(stages)),
      available_(graph.values().size()),
      broadcast_from_(graph.nodes().size()) {
  std::iota(all_.begin(), all_.end(), int64_t{0});
  for (const GraphInput& input : graph.inputs()) available_[input.value] = all_;
  place_weights(loop, tasks);
  place_sums(loop, tasks);
  do {
    place_nodes(loop);
  } while (place_states());
}

bool Availability::at(ValueId value, int64_t stage) const {
  return std::ranges::binary_search(available_[value], stage);
}

// Places weights: each is on the stages whose tasks read it. Stacked ones are on all: each has its
// own layers.
void Availability::place_weights(NodeId loop_id, const TaskBodies& tasks) {
  const Loop loop(graph_.node(loop_id));
  std::vector<std::set<int64_t>> readers(loop.constants());
  for (const auto& [task, body] : tasks.bodies)
    for (const TaskInput& input : body.inputs)
      if (input.kind == TaskInput::Kind::kConstant)
        readers[input.index].insert(task.piece % stages_);
  for (const GraphInput& input : graph_.inputs()) {
    if (!persists(input.kind) || graph_.type(input.value).rank() == 0) continue;
    std::set<int64_t> stages;
    for (size_t i = 0; i < loop.constants(); ++i)
      if (loop.constant(i) == input.value) stages.insert(readers[i].begin(), readers[i].end());
    const Type& type = graph_.type(input.value);
    const bool is_stack = type.axes[0].name == kLayersAxis;
    if (!stages.empty() && !is_stack) available_[input.value] = {stages.begin(), stages.end()};
  }
}

// Places sums: the gradient of a weight is on the stages that have terms of it, metrics are on all.
void Availability::place_sums(NodeId loop_id, const TaskBodies& tasks) {
  const Loop loop(graph_.node(loop_id));
  for (const ValueId value : graph_.node(loop_id).outputs) available_[value] = all_;
  for (size_t i = 0; i < loop.carries(); ++i) {
    const StageList& stages = tasks.stages_of_sums[i];
    const NodeId add = loop.body().value(loop.carry_out(i)).producer;
    const bool is_gradient = loop.body().node(add).phase == Phase::kBackward;
    if (is_gradient && !stages.empty()) available_[loop.last(i)] = stages;
  }
}

void Availability::place_nodes(NodeId loop) {
  for (const NodeId id : graph_.nodes().ids()) {
    if (id == loop) continue;
    const Node& node = graph_.node(id);
    // The norm of tensors on some stages is summed over the stages.
    const bool is_norm =
        node.op == &kSquaredNormOp && std::ranges::any_of(node.inputs, [&](ValueId value) {
          return !is_everywhere(available_[value]);
        });
    StageList stages = is_norm ? StageList() : all_;
    for (const ValueId value : node.inputs)
      stages = is_norm ? either(stages, available_[value]) : both(stages, available_[value]);
    CHECK(!stages.empty(), "no stage has all operands of {}", node.op->name);
    const bool is_scalar = std::ranges::all_of(
        node.outputs, [&](ValueId value) { return graph_.type(value).rank() == 0; });
    const bool is_broadcast = is_norm || (is_scalar && !is_everywhere(stages));
    broadcast_from_[id] = is_broadcast ? stages : StageList();
    for (const ValueId value : node.outputs) available_[value] = is_broadcast ? all_ : stages;
  }
}

// Places states: each is where its next value is computed. Returns whether any place has changed.
bool Availability::place_states() {
  bool changed = false;
  for (const GraphOutput& output : graph_.outputs()) {
    if (!output.is_update) continue;
    StageList& stages = available_[graph_.find_input(output.name)->value];
    const StageList updated = both(stages, available_[output.value]);
    if (updated == stages) continue;
    CHECK(!updated.empty(), "no stage updates {}", output.name);
    stages = updated;
    changed = true;
  }
  return changed;
}

StageHomes Availability::homes() const {
  StageHomes homes;
  for (const GraphInput& input : graph_.inputs())
    if (persists(input.kind) && !is_everywhere(available_[input.value]))
      homes[input.name] = available_[input.value];
  return homes;
}

}  // namespace tessera
