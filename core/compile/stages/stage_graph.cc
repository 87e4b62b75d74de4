// SPDX-License-Identifier: Apache-2.0
#include "core/compile/stages/stage_graph.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/compile/rewrite.h"
#include "core/compile/simplify.h"
#include "core/compile/stages/added_nodes.h"
#include "core/compile/stages/placement.h"
#include "core/compile/stages/stage_node.h"
#include "core/compile/stages/task_bodies.h"
#include "core/graph/op.h"
#include "core/ops/leaves.h"
#include "core/ops/optimizer.h"

namespace tessera {
namespace {

bool is_loop_over_microbatches(const Node& node) {
  return is_repeat(node) && std::ranges::any_of(Loop(node).body().nodes(), is_stage_gather);
}

NodeId find_loop(const Graph& graph) {
  for (const NodeId id : graph.nodes().ids())
    if (is_loop_over_microbatches(graph.node(id))) return id;
  return kNone;
}

bool splits_backward(const PipelineTable& table) {
  return std::ranges::any_of(table.tasks, [](const PipelineTask& task) {
    return task.work == PipelineWork::kBackwardInput;
  });
}

LayerPieces divide(const Mesh& mesh, const PipelineTable& table, int64_t layers) {
  if (table.stages != mesh.stages())
    fail("the pipeline schedule '{}' is for {} stages, but the mesh has {} ({})", table.name,
         table.stages, mesh.stages(), mesh.text());
  LayerPieces pieces = mesh.layer_pieces_of(layers);
  if (pieces.pieces() != table.pieces())
    fail("the pipeline schedule '{}' has {} pieces, but the layers are divided into {}", table.name,
         table.pieces(), pieces.pieces());
  return pieces;
}

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

// Finds on which stages of a pipeline the values outside the loop over microbatches are computed:
// an embedding and its update on the stages that use it, most others on all.
class Availability {
 public:
  // `loop` is the loop over microbatches in `graph`.
  Availability(const Graph& graph, NodeId loop, const TaskBodies& tasks, int64_t stages)
      : graph_(graph),
        stages_(stages),
        all_(static_cast<size_t>(stages)),
        available_(graph.values().size()),
        broadcast_from_(graph.nodes().size()) {
    std::iota(all_.begin(), all_.end(), int64_t{0});
    for (const GraphInput& input : graph.inputs()) available_[input.value] = all_;
    const std::vector<ValueId> weights = place_weights(loop, tasks);
    place_sums(loop, tasks);
    for (const ValueId weight : weights) place_sums_for(weight, loop);
    do {
      place_nodes(loop);
    } while (place_states());
  }

  // Returns the stages that compute or hold the value.
  const StageList& of(ValueId value) const { return available_[value]; }
  bool at(ValueId value, int64_t stage) const {
    return std::ranges::binary_search(available_[value], stage);
  }
  bool is_everywhere(const StageList& stages) const { return std::ssize(stages) == stages_; }
  // Returns the stages that hold the operands of a node whose results all stages need; empty for
  // other nodes. A squared norm may have operands of different stages.
  const StageList& broadcast_from(NodeId node) const { return broadcast_from_[node]; }

  // Returns the parameters and states that not all stages hold.
  StageHomes homes() const {
    StageHomes homes;
    for (const GraphInput& input : graph_.inputs())
      if (persists(input.kind) && !is_everywhere(available_[input.value]))
        homes[input.name] = available_[input.value];
    return homes;
  }

 private:
  // Places weights, and returns them: each is on the stages whose tasks read it. Stacked ones are
  // on all: each has its own layers.
  std::vector<ValueId> place_weights(NodeId loop_id, const TaskBodies& tasks) {
    const Loop loop(graph_.node(loop_id));
    std::vector<std::set<int64_t>> readers(loop.constants());
    for (const auto& [task, body] : tasks.bodies)
      for (const TaskInput& input : body.inputs)
        if (input.kind == TaskInput::Kind::kConstant)
          readers[input.index].insert(task.piece % stages_);
    std::vector<ValueId> placed;
    for (const GraphInput& input : graph_.inputs()) {
      if (!persists(input.kind) || graph_.type(input.value).rank() == 0) continue;
      std::set<int64_t> stages;
      for (size_t i = 0; i < loop.constants(); ++i)
        if (loop.constant(i) == input.value) stages.insert(readers[i].begin(), readers[i].end());
      const Type& type = graph_.type(input.value);
      const bool is_stack = type.axes[0].name == kLayersAxis;
      if (stages.empty() || is_stack) continue;
      available_[input.value] = {stages.begin(), stages.end()};
      placed.push_back(input.value);
    }
    return placed;
  }

  // A weight that all layers share has all terms of its gradient on the stage where the loop over
  // the layers ends, but every stage that reads the weight updates it.
  void place_sums_for(ValueId weight, NodeId loop) {
    ValueFlags seen(graph_.values().size());
    std::vector<ValueId> left;
    for (const GraphOutput& output : graph_.outputs())
      if (output.is_update && graph_.find_input(output.name)->value == weight)
        left.push_back(output.value);
    while (!left.empty()) {
      const ValueId value = left.back();
      left.pop_back();
      const NodeId producer = graph_.value(value).producer;
      // Scalars, such as the norm of all gradients, reach all stages anyway.
      if (producer == kNone || seen[value] || graph_.type(value).rank() == 0) continue;
      seen[value] = true;
      const std::vector<ValueId>& operands = graph_.node(producer).inputs;
      if (producer == loop)
        available_[value] = either(available_[value], available_[weight]);
      else
        left.insert(left.end(), operands.begin(), operands.end());
    }
  }

  // Places sums: the gradient of a weight is on the stages that have terms of it, metrics are on
  // all.
  void place_sums(NodeId loop_id, const TaskBodies& tasks) {
    const Loop loop(graph_.node(loop_id));
    for (const ValueId value : graph_.node(loop_id).outputs) available_[value] = all_;
    for (size_t i = 0; i < loop.carries(); ++i) {
      const StageList& stages = tasks.stages_of_sums[i];
      const NodeId add = loop.body().value(loop.carry_out(i)).producer;
      const bool is_gradient = loop.body().node(add).phase == Phase::kBackward;
      if (is_gradient && !stages.empty()) available_[loop.last(i)] = stages;
    }
  }

  void place_nodes(NodeId loop) {
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
  bool place_states() {
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

  const Graph& graph_;
  int64_t stages_;
  StageList all_;
  IndexedVector<ValueId, StageList> available_;
  IndexedVector<NodeId, StageList> broadcast_from_;
};

// Copies the graph outside the loop over microbatches, as far as one stage computes it.
class StageRewriter {
 public:
  StageRewriter(const Graph& graph, NodeId loop, const TaskBodies& tasks, const LayerPieces& pieces,
                const PipelineTable& table, int64_t stage)
      : graph_(graph),
        loop_id_(loop),
        tasks_(tasks),
        pieces_(pieces),
        table_(table),
        stage_(stage),
        available_(graph, loop, tasks, table.stages),
        rewriter_(graph),
        made_(rewriter_.to()) {}

  StageGraph run() {
    for (const GraphInput& input : graph_.inputs())
      if (available_.at(input.value, stage_)) rewriter_.copy_input(input);
    for (const NodeId id : graph_.nodes().ids()) {
      if (id == loop_id_) {
        add_pipeline();
      } else if (graph_.node(id).op == &kSquaredNormOp) {
        add_squared_norm(id);
      } else if (!available_.broadcast_from(id).empty()) {
        broadcast_node(id);
      } else if (is_stage_slice(graph_.node(id))) {
        add_own_layers(id);
      } else if (is_here(id)) {
        rewriter_.copy_node(id);
      }
    }
    add_outputs();
    return {dce(std::move(made_)), available_.homes()};
  }

 private:
  bool is_here(NodeId id) const {
    return std::ranges::all_of(graph_.node(id).inputs,
                               [&](ValueId value) { return available_.at(value, stage_); });
  }

  AddedNodes for_node(const Node& like) { return {made_, like}; }

  // Returns a value that the stages `from` have, for all stages.
  ValueId broadcast(const StageList& from, ValueId value, const Type& type, const Node& like) {
    AddedNodes added = for_node(like);
    return added.sum_over_stages(stage_ == from.front() ? value : added.zeros(type));
  }

  // Adds a norm of tensors on some stages: each is counted by the first of its stages.
  void add_squared_norm(NodeId id) {
    if (available_.broadcast_from(id).empty()) {
      rewriter_.copy_node(id);
      return;
    }
    const Node& node = graph_.node(id);
    std::vector<ValueId> own;
    for (const ValueId value : node.inputs)
      if (available_.of(value).front() == stage_) own.push_back(rewriter_.at(value));
    const Type& type = graph_.type(node.outputs[0]);
    AddedNodes added = for_node(node);
    const ValueId sum =
        own.empty() ? added.zeros(type) : added.add(kSquaredNormOp, std::move(own), {}, type);
    set(node.outputs[0], added.sum_over_stages(sum));
  }

  void broadcast_node(NodeId id) {
    const Node& node = graph_.node(id);
    const StageList& from = available_.broadcast_from(id);
    if (is_here(id)) rewriter_.copy_node(id);
    for (const ValueId value : node.outputs) {
      const ValueId own = is_here(id) ? rewriter_.at(value) : ValueId();
      rewriter_.set(value, broadcast(from, own, graph_.type(value), node));
    }
  }

  void add_pipeline() {
    const Node& node = graph_.node(loop_id_);
    const Loop loop(node);
    const StageNode stage(node, tasks_, table_, stage_);
    const NodeId id = stage.add_to(
        made_, [&](const PartialSum& sum) { return initial(loop, sum); },
        [&](ValueId value) { return rewriter_.at(value); });
    const std::vector<ValueId> outputs = made_.node(id).outputs;
    const auto& sums = stage.sums();
    for (size_t i = 0; i < loop.carries(); ++i) {
      const Node& add = loop.body().node(loop.body().value(loop.carry_out(i)).producer);
      if (tasks_.stages_of_sums[i].empty()) {
        set(loop.last(i), stacked_sum(i, sums, outputs, add));
        continue;
      }
      const auto own = std::ranges::find(sums, PartialSum{i});
      const ValueId value = own == sums.end() ? rewriter_.at(loop.initial(i))
                                              : outputs[static_cast<size_t>(own - sums.begin())];
      add_sum(loop.last(i), tasks_.stages_of_sums[i], value, add);
    }
    for (size_t k = 0; k < loop.results(); ++k) {
      const auto own = std::ranges::find(stage.results(), k);
      const Type& type = graph_.type(loop.result(k));
      const auto place = static_cast<size_t>(own - stage.results().begin());
      const ValueId value = own == stage.results().end() ? ValueId() : outputs[sums.size() + place];
      set(loop.result(k), broadcast({tasks_.stage_of_results[k]}, value, type, node));
    }
  }

  void set(ValueId old, ValueId value) {
    made_.value(value).name = graph_.value(old).name;
    rewriter_.set(old, value);
  }

  // Terms of several stages would be added in another order than on one device.
  void check_order(const StageList& stages, const Node& sum) const {
    const Loop loop(graph_.node(loop_id_));
    const bool in_leaves = std::ranges::any_of(
        loop.body().nodes(), [](const Node& node) { return node.op == &kOwnLeafOp; });
    if (in_leaves && stages.size() > 1)
      fail(
          "numerics=mesh_invariant: stages {} have terms of one sum over microbatches: {}; do not "
          "tie a weight that several of them use, or use a mesh without stages",
          fmt::join(stages, " and "), loop.body().describe(sum.outputs[0]));
  }

  // Adds the terms of all stages that need the sum.
  void add_sum(ValueId old, const StageList& terms, ValueId value, const Node& like) {
    const bool is_everywhere = available_.is_everywhere(available_.of(old));
    if (!is_everywhere && !available_.at(old, stage_)) return;
    check_order(terms, like);
    if (is_everywhere) {
      value = for_node(like).sum_over_stages(value);
    } else if (available_.of(old).size() > 1) {
      value = for_node(like).sum_over_stages(value, available_.of(old));
    }
    set(old, value);
  }

  ValueId initial(const Loop& loop, const PartialSum& sum) {
    const ValueId whole = rewriter_.at(loop.initial(sum.carry));
    if (sum.chunk == PartialSum::kWhole) return whole;
    const int64_t piece = pieces_.piece(stage_, sum.chunk);
    return for_node(graph_.node(loop_id_))
        .rows(whole, pieces_.first_row(piece), pieces_.layers(piece));
  }

  // Adds this stage's part of a value that all stages have for all layers.
  void add_own_layers(NodeId id) {
    const Node& node = graph_.node(id);
    CHECK(graph_.type(node.outputs[0]).axes[0].name == kLayersAxis);
    AddedNodes added = for_node(node);
    set(node.outputs[0], rows_of_stage(added, rewriter_.at(node.inputs[0]), pieces_, stage_));
  }

  // Returns the rows of all chunks of this stage.
  ValueId stacked_sum(size_t carry, const std::vector<PartialSum>& sums,
                      const std::vector<ValueId>& outputs, const Node& like) {
    std::vector<ValueId> parts;
    for (int64_t chunk = 0; chunk < pieces_.chunks(); ++chunk) {
      const auto own = std::ranges::find(sums, PartialSum{carry, chunk});
      CHECK(own != sums.end());
      parts.push_back(outputs[static_cast<size_t>(own - sums.begin())]);
    }
    AddedNodes added = for_node(like);
    return added.padded(added.joined(std::move(parts)), pieces_.rows());
  }

  void add_outputs() {
    for (const GraphOutput& output : graph_.outputs()) {
      const StageList& stages = available_.of(output.value);
      if (output.is_update) {
        if (available_.at(graph_.find_input(output.name)->value, stage_))
          made_.add_update(output.name, rewriter_.at(output.value));
      } else if (available_.is_everywhere(stages)) {
        made_.add_output(output.name, rewriter_.at(output.value));
      } else {
        const NodeId producer = graph_.value(output.value).producer;
        const Node& like = graph_.node(producer == kNone ? loop_id_ : producer);
        const ValueId own =
            available_.at(output.value, stage_) ? rewriter_.at(output.value) : ValueId();
        made_.add_output(output.name, broadcast(stages, own, graph_.type(output.value), like));
      }
    }
  }

  const Graph& graph_;
  NodeId loop_id_;
  const TaskBodies& tasks_;
  const LayerPieces& pieces_;
  const PipelineTable& table_;
  int64_t stage_;
  const Availability available_;
  Rewriter rewriter_;
  Graph& made_;
};

}  // namespace

bool can_pipeline(const Graph& localized) { return find_loop(localized) != kNone; }

StageGraph stage_graph(const Graph& localized, const Mesh& mesh, const PipelineTable& table,
                       int64_t stage) {
  const Graph graph = splits_backward(table) ? split_backward(localized) : localized;
  const NodeId id = find_loop(graph);
  CHECK(id != kNone, "the graph has no loop over microbatches with layers stacked over stage");
  const Loop loop(graph.node(id));
  if (loop.count() != table.microbatches)
    fail("the pipeline schedule '{}' is for {} microbatches, but the batch has {}", table.name,
         table.microbatches, loop.count());
  const TaskPlacement placement(loop, table.pieces());
  const LayerPieces pieces = divide(mesh, table, placement.layers());
  const TaskBodies tasks = make_task_bodies(loop, placement, pieces);
  return StageRewriter(graph, id, tasks, pieces, table, stage).run();
}

}  // namespace tessera
