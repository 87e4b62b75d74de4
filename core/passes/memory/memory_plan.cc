// SPDX-License-Identifier: Apache-2.0
#include "core/passes/memory/memory_plan.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/passes/memory/arena_packing.h"
#include "core/passes/memory/liveness.h"
#include "core/passes/schedule/flatten.h"
#include "core/passes/schedule/overlap.h"

namespace tessera {
namespace {

// Offsets of the persistent inputs: as fixed, the others after them.
int64_t place_persistent(const Graph& graph, const std::vector<Placement>& persistent,
                         std::vector<Placement>& inputs) {
  int64_t end = 0;
  for (const Placement& fixed : persistent)
    end = std::max(end, fixed.offset + aligned(fixed.type.bytes()));
  for (const GraphInput& input : graph.inputs()) {
    Placement placement{input.name, input.kind, graph.type(input.value), kNone};
    if (input.kind == InputKind::kParameter || input.kind == InputKind::kState) {
      const auto fixed = std::find_if(persistent.begin(), persistent.end(),
                                      [&](const Placement& p) { return p.name == input.name; });
      if (fixed == persistent.end()) {
        placement.offset = end;
        end += aligned(placement.type.bytes());
      } else if (fixed->type != placement.type) {
        fail("the programs of one run disagree on {}: {} and {}", input.name,
             fixed->type.text_sized(), placement.type.text_sized());
      } else {
        placement.offset = fixed->offset;
      }
    }
    inputs.push_back(std::move(placement));
  }
  return end;
}

class Planner {
 public:
  Planner(FlatProgram program, const std::vector<Placement>& persistent)
      : program_(std::move(program)), offsets_(program_.buffers.size(), kNone) {
    plan_.graph = program_.graph;
    plan_.helpers = program_.helpers;
    plan_.persistent_bytes = place_persistent(*plan_.graph, persistent, plan_.inputs);
  }

  StepPlan plan() {
    place_buffers();
    place_inputs_and_outputs();
    for (const FlatLaunch& launch : program_.launches) plan_.launches.push_back(placed(launch));
    measure();
    return std::move(plan_);
  }

 private:
  void place_buffers() {
    for (size_t i = 0; i < plan_.inputs.size(); ++i)
      if (plan_.inputs[i].offset != kNone) offset_of(program_.inputs[i]) = plan_.inputs[i].offset;
    std::vector<PackedBlock> blocks;
    std::vector<size_t> owners;
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const FlatBuffer& buffer = program_.buffers[i];
      if (buffer.parent != kNone || buffer.persistent) continue;
      owners.push_back(i);
      blocks.push_back({buffer.bytes, buffer.first, buffer.last});
    }
    const int64_t packed = pack(blocks);
    for (size_t i = 0; i < owners.size(); ++i)
      offsets_[owners[i]] = plan_.persistent_bytes + blocks[i].offset;
    plan_.arena_bytes = plan_.persistent_bytes + packed;
  }

  int64_t& offset_of(FlatValue root) { return offsets_[static_cast<size_t>(root.buffer)]; }

  int64_t offset(FlatValue value) {
    const FlatValue root = program_.root(value);
    CHECK(offset_of(root) != kNone);
    return offset_of(root) + root.offset;
  }

  void place_inputs_and_outputs() {
    const Graph& graph = *plan_.graph;
    for (size_t i = 0; i < plan_.inputs.size(); ++i)
      plan_.inputs[i].offset = offset(program_.inputs[i]);
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      const GraphOutput& output = graph.outputs()[i];
      if (output.is_update) continue;
      plan_.outputs.push_back(
          {output.name, InputKind::kBatch, graph.type(output.value), offset(program_.outputs[i])});
    }
  }

  Launch placed(const FlatLaunch& launch) {
    Launch result{.graph = launch.graph, .node = launch.node, .inputs = {}, .outputs = {}};
    for (const FlatValue value : launch.inputs) result.inputs.push_back(offset(value));
    for (const FlatValue value : launch.outputs) result.outputs.push_back(offset(value));
    if (launch.scratch != kNone) result.scratch = offset({launch.scratch, 0, 0});
    result.kind = launch.kind;
    result.waits_for = launch.waits_for;
    return result;
  }

  void measure() {
    MemoryUse& use = plan_.use;
    for (const Placement& input : plan_.inputs) {
      int64_t& bytes = input.kind == InputKind::kParameter ? use.parameters
                       : input.kind == InputKind::kState   ? use.state
                                                           : use.batch;
      bytes += aligned(input.type.bytes());
    }
    measure_fullest_moment();
    use.peak = plan_.arena_bytes;
    use.temporaries =
        use.peak - plan_.persistent_bytes - use.batch - use.activations - use.gradients;
  }

  void measure_fullest_moment() {
    // Bytes that come (and go) at each moment; inputs are there at all of them.
    struct Change {
      int64_t all = 0, activations = 0, gradients = 0;
    };
    std::vector<Change> changes(program_.launches.size() + 2);
    for (const FlatBuffer& buffer : program_.buffers) {
      if (buffer.parent != kNone || buffer.is_input || buffer.first > buffer.last) continue;
      const int64_t bytes = aligned(buffer.bytes);
      const bool gradient =
          buffer.last_read_in == Phase::kUpdate && buffer.written_in != Phase::kUpdate;
      const bool activation =
          buffer.last_read_in == Phase::kBackward && buffer.written_in == Phase::kForward;
      const auto add = [&](int64_t moment, int64_t sign) {
        Change& change = changes[static_cast<size_t>(moment)];
        change.all += sign * bytes;
        if (activation) change.activations += sign * bytes;
        if (gradient) change.gradients += sign * bytes;
      };
      add(buffer.first, 1);
      add(buffer.last + 1, -1);
    }
    Change now;
    int64_t most = -1;
    for (const Change& change : changes) {
      now.all += change.all;
      now.activations += change.activations;
      now.gradients += change.gradients;
      if (now.all <= most) continue;
      most = now.all;
      plan_.use.activations = now.activations;
      plan_.use.gradients = now.gradients;
    }
  }

  FlatProgram program_;
  std::vector<int64_t> offsets_;  // Of buffers without parent.
  StepPlan plan_;
};

}  // namespace

StepPlan plan_memory(Graph lowered, const KernelFacts& facts,
                     const std::vector<Placement>& persistent, Communication communication) {
  FlatProgram program = flatten(std::make_shared<const Graph>(std::move(lowered)), facts);
  if (communication == Communication::kOverlapped) overlap(program);
  write_in_place(program, facts);
  return Planner(std::move(program), persistent).plan();
}

}  // namespace tessera
