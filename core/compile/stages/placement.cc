// SPDX-License-Identifier: Apache-2.0
#include "core/compile/stages/placement.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/compile/rewrite.h"
#include "core/graph/layer_pieces.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

bool is_over_stage(const Node& node) {
  using Names = std::vector<std::string>;
  return node.attributes.get_or(key::kMeshAxes, {}) == Names{std::string(kStageAxis)};
}

}  // namespace

bool is_stage_gather(const Node& node) { return node.op == &kAllGatherOp && is_over_stage(node); }

bool is_stage_slice(const Node& node) { return node.op == &kSliceOp && is_over_stage(node); }

TaskPlacement::TaskPlacement(const Loop& microbatches, int64_t pieces)
    : microbatches_(microbatches),
      body_(microbatches.body()),
      pieces_(pieces),
      tasks_(body_.nodes().size()),
      stacked_(body_.values().size()) {
  find_loops();
  find_stacked_gradients();
  place_nodes();
}

const LayerLoop* TaskPlacement::loop(NodeId node) const {
  const auto found = std::ranges::find(loops_, node, &LayerLoop::node);
  return found == loops_.end() ? nullptr : &*found;
}

std::optional<int64_t> TaskPlacement::previous_piece(const LayerLoop& loop, int64_t piece) const {
  const int64_t previous = loop.work == PipelineWork::kForward ? piece - 1 : piece + 1;
  if (previous < 0 || previous == pieces_) return std::nullopt;
  return previous;
}

int64_t TaskPlacement::last_piece(const LayerLoop& loop) const {
  return loop.work == PipelineWork::kForward ? pieces_ - 1 : 0;
}

PipelineWork TaskPlacement::weight_work() const {
  const bool split =
      std::ranges::find(loops_, PipelineWork::kBackwardWeight, &LayerLoop::work) != loops_.end();
  return split ? PipelineWork::kBackwardWeight : PipelineWork::kBackward;
}

void TaskPlacement::find_loops() {
  for (const NodeId id : body_.nodes().ids()) {
    const Node& gather = body_.node(id);
    if (!is_stage_gather(gather)) continue;
    layers_ = body_.type(gather.outputs[0]).axis(kLayersAxis).size;
  }
  CHECK(layers_ > 0, "no layers are stacked over stage");
  bool has_weight_loop = false;
  for (const NodeId id : body_.nodes().ids()) {
    const Node& node = body_.node(id);
    if (!is_repeat(node) || Loop(node).axis() != kLayersAxis) continue;
    const Loop loop(node);
    if (loop.count() != layers_)
      fail(
          "{}: a pipeline divides one stack of layers, but there is one of {} and one of {}; use "
          "one Repeated",
          node.path, layers_, loop.count());
    const bool forward = node.phase == Phase::kForward;
    // split_backward() puts the loop of the weights' gradients after that of the inputs'.
    const bool weight = node.attributes.get_or(kBackwardWeightLoop, false);
    has_weight_loop = has_weight_loop || weight;
    const PipelineWork work = forward  ? PipelineWork::kForward
                              : weight ? PipelineWork::kBackwardWeight
                                       : PipelineWork::kBackward;
    for (const LayerLoop& other : loops_)
      if (other.work == work)
        fail("{}: a pipeline divides one stack of layers, but the model has two; use one Repeated",
             node.path);
    loops_.push_back({id, work});
  }
  for (LayerLoop& each : loops_)
    if (has_weight_loop && each.work == PipelineWork::kBackward)
      each.work = PipelineWork::kBackwardInput;
}

// Starts at the results of backward loops and follows ops that keep the axis of the stack first.
void TaskPlacement::find_stacked_gradients() {
  for (const LayerLoop& each : loops_) {
    if (each.work == PipelineWork::kForward) continue;
    const Loop loop(body_.node(each.node));
    for (size_t k = 0; k < loop.results(); ++k) stacked_[loop.result(k)] = true;
  }
  for (const NodeId id : body_.nodes().ids()) {
    const Node& node = body_.node(id);
    if (loop(id) != nullptr || node.outputs.size() != 1) continue;
    const Type& type = body_.type(node.outputs[0]);
    if (any_flagged(node.inputs, stacked_) && type.rank() > 0 && type.axes[0].name == kLayersAxis)
      stacked_[node.outputs[0]] = true;
  }
}

TaskPlacement::Dependences TaskPlacement::dependences() const {
  std::vector<ValueId> of_forward, of_backward;  // Results of the loops.
  std::vector<ValueId> to_forward, to_backward;  // Operands of the loops.
  for (const LayerLoop& each : loops_) {
    const Node& node = body_.node(each.node);
    const bool is_forward = each.work == PipelineWork::kForward;
    std::vector<ValueId>& results = is_forward ? of_forward : of_backward;
    results.insert(results.end(), node.outputs.begin(), node.outputs.end());
    if (each.work == PipelineWork::kBackwardWeight) continue;
    std::vector<ValueId>& operands = is_forward ? to_forward : to_backward;
    operands.insert(operands.end(), node.inputs.begin(), node.inputs.end());
  }
  std::vector<ValueId> slices, constants;
  for (size_t i = 0; i < microbatches_.slices(); ++i) slices.push_back(microbatches_.slice_in(i));
  for (size_t i = 0; i < microbatches_.constants(); ++i)
    if (body_.type(microbatches_.constant_in(i)).rank() > 0)
      constants.push_back(microbatches_.constant_in(i));
  Dependences result{.on_forward = descendants(body_, of_forward),
                     .on_backward = descendants(body_, of_backward),
                     .on_weights = descendants(body_, constants),
                     .on_batch = descendants(body_, slices),
                     .of_forward = ancestors(body_, to_forward),
                     .of_backward = ancestors(body_, to_backward)};
  std::vector<ValueId> to_last;
  for (const NodeId id : body_.nodes().ids()) {
    const Node& node = body_.node(id);
    if (loop(id) == nullptr && any_flagged(node.inputs, result.on_forward) &&
        !any_flagged(node.inputs, result.on_backward))
      to_last.insert(to_last.end(), node.inputs.begin(), node.inputs.end());
  }
  result.of_last = ancestors(body_, to_last);
  return result;
}

void TaskPlacement::place_nodes() {
  const Dependences flags = dependences();
  const PipelineWork weight_work = this->weight_work();
  const PipelineWork input_work = weight_work == PipelineWork::kBackwardWeight
                                      ? PipelineWork::kBackwardInput
                                      : PipelineWork::kBackward;
  for (const NodeId id : body_.nodes().ids()) {
    const Node& node = body_.node(id);
    if (loop(id) != nullptr) continue;
    const bool is_forward = node.phase == Phase::kForward;
    const bool is_of_tokens =
        any_flagged(node.inputs, flags.on_weights) && any_flagged(node.inputs, flags.on_batch);
    // Heads after the layers may embed tokens, and recompute that for their gradients.
    const bool is_for_last = is_of_tokens && any_flagged(node.outputs, flags.of_last) &&
                             !any_flagged(node.outputs, flags.of_forward);
    if (any_flagged(node.inputs, flags.on_backward)) {
      tasks_[id] = PieceTask{weight_work, 0};
    } else if (any_flagged(node.inputs, flags.on_forward) || is_for_last) {
      const bool is_awaited = any_flagged(node.outputs, flags.of_backward);
      const PipelineWork work = is_forward   ? PipelineWork::kForward
                                : is_awaited ? input_work
                                             : weight_work;
      tasks_[id] = PieceTask{work, pieces_ - 1};
    } else if (is_of_tokens) {
      tasks_[id] = PieceTask{is_forward ? PipelineWork::kForward : weight_work, 0};
    }
  }
}

}  // namespace tessera
