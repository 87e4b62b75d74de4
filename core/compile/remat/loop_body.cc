// SPDX-License-Identifier: Apache-2.0
#include "core/compile/remat/loop_body.h"

#include <algorithm>

#include <fmt/core.h>

#include "core/graph/op.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// Finds values that are equal in every iteration: they depend on no carry, slice or index.
ValueFlags find_invariant(const Graph& joint, const Loop& loop, NodeId forward_end) {
  ValueFlags invariant(joint.values().size());
  for (size_t i = 0; i < loop.constants(); ++i) invariant[loop.constant_in(i)] = true;
  for (const NodeId id : IdRange(forward_end)) {
    const Node& node = joint.node(id);
    const bool all = std::ranges::all_of(node.inputs, [&](ValueId v) { return invariant[v]; });
    for (const ValueId value : node.outputs) invariant[value] = all;
  }
  return invariant;
}

bool is_inexpensive(const Node& node) {
  const OpClass kind = node.op->op_class;
  return kind == OpClass::kElementwise || kind == OpClass::kGenerator ||
         kind == OpClass::kDataMovement || kind == OpClass::kView;
}

class CandidateSearch {
 public:
  CandidateSearch(const Graph& graph, const PassesOfGraph& passes)
      : graph_(graph), passes_(passes), readers_(graph) {}

  ValueFlags find() {
    ValueFlags candidates(graph_.values().size());
    for (const NodeId id : graph_.nodes().ids()) {
      const Node& node = graph_.node(id);
      if (node.op->op_class != OpClass::kElementwise || !passes_.is_forward(id)) continue;
      const ValueId value = node.outputs[0];
      candidates[value] = only_elementwise_reads(value) && !must_be_saved(value) &&
                          std::ranges::all_of(node.inputs, [&](ValueId operand) {
                            return is_available(operand, value);
                          });
    }
    return candidates;
  }

 private:
  bool only_elementwise_reads(ValueId value) const {
    bool is_read = false;
    for (const NodeId id : readers_[value]) {
      if (!passes_.is_backward(id)) continue;
      const Node& reader = graph_.node(id);
      if (reader.op->op_class != OpClass::kElementwise) return false;
      if (graph_.type(reader.outputs[0]).axes != graph_.type(value).axes) return false;
      is_read = true;
    }
    return is_read;
  }

  bool must_be_saved(ValueId value) const {
    for (const NodeId id : readers_[value])
      if (graph_.node(id).op == &kSaveForBackwardOp) return true;
    return std::ranges::any_of(graph_.outputs(),
                               [&](const GraphOutput& output) { return output.value == value; });
  }

  // Returns whether the backward pass reads `operand` anyway, or can get it at little cost.
  bool is_available(ValueId operand, ValueId value) const {
    const NodeId producer = graph_.value(operand).producer;
    if (producer == kNone && passes_.persists(operand)) return true;
    if (producer != kNone && graph_.node(producer).op->op_class == OpClass::kGenerator) return true;
    if (graph_.type(operand).elements() * 16 <= graph_.type(value).elements()) return true;
    const std::span<const NodeId> readers = readers_[operand];
    return std::ranges::any_of(readers, passes_.is_backward);
  }

  const Graph& graph_;
  const PassesOfGraph& passes_;
  Consumers readers_;
};

}  // namespace

ValueFlags recompute_candidates(const Graph& graph, const PassesOfGraph& passes) {
  return CandidateSearch(graph, passes).find();
}

LoopBody::LoopBody(const Graph& joint, const Loop& forward, NodeId forward_end)
    : joint_(joint),
      forward_(forward),
      forward_end_(forward_end),
      sources_(joint.values().size(), Source::kUnknown),
      invariant_(find_invariant(joint, forward, forward_end)) {}

bool LoopBody::saves(ValueId value) const {
  if (save_) return save_(value);
  const Node& producer = joint_.node(joint_.value(value).producer);
  return producer.op->op_class != OpClass::kView && !is_inexpensive_invariant(value) &&
         !candidates_[value];
}

void LoopBody::find_candidates() {
  const auto persists = [&](ValueId value) {
    for (size_t i = 0; i < forward_.carries(); ++i)
      if (value == forward_.carry_in(i)) return false;
    return true;
  };
  candidates_ =
      recompute_candidates(joint_, {.is_forward = [&](NodeId id) { return id < forward_end_; },
                                    .is_backward = [&](NodeId id) { return live_[id]; },
                                    .persists = persists});
}

bool LoopBody::is_inexpensive_invariant(ValueId value) const {
  return invariant_[value] && is_inexpensive(joint_.node(joint_.value(value).producer));
}

void LoopBody::add_carry(ValueId in, ValueId out) {
  carries_in_.push_back(in);
  carries_out_.push_back(out);
}

void LoopBody::add_slice(ValueId in) { slices_in_.push_back(in); }
void LoopBody::add_result(ValueId out) { results_.push_back(out); }

LoopBody::Source LoopBody::classify(ValueId value) {
  const NodeId producer = joint_.value(value).producer;
  if (producer >= forward_end_) return Source::kBackward;
  if (producer != kNone) return saves(value) ? Source::kSaved : Source::kRecomputed;
  if (value == forward_.index()) return Source::kIndex;
  for (size_t i = 0; i < forward_.operands(); ++i) {
    if (value != forward_.operand_in(i)) continue;
    if (i < forward_.carries()) return Source::kSaved;
    const size_t slice = i - forward_.carries();
    const bool is_slice = slice < forward_.slices();
    (is_slice ? slices_ : constants_).push_back(is_slice ? slice : slice - forward_.slices());
    return is_slice ? Source::kSlice : Source::kConstant;
  }
  return Source::kBackward;  // An input added by tracing the backward pass.
}

// Decides where the backward pass gets a value from, and what this requires in turn.
void LoopBody::require(ValueId value) {
  Source& source = sources_[value];
  if (source != Source::kUnknown) return;
  source = classify(value);
  if (source == Source::kSaved) saved_.push_back(value);
  if (source == Source::kRecomputed)
    for (const ValueId operand : joint_.node(joint_.value(value).producer).inputs) require(operand);
}

// Finds the backward nodes that a result depends on. A vjp may compute cotangents that are not
// read.
void LoopBody::find_live() {
  const NodeId end = joint_.nodes().end_id();
  live_ = NodeFlags(joint_.nodes().size());
  ValueFlags wanted(joint_.values().size());
  for (const ValueId out : carries_out_) wanted[out] = true;
  for (const ValueId out : results_) wanted[out] = true;
  for (const NodeId id : IdRange(forward_end_, end).reversed()) {
    const Node& node = joint_.node(id);
    const bool used = any_flagged(node.outputs, wanted);
    live_[id] = used;
    if (!used) continue;
    for (const ValueId operand : node.inputs) wanted[operand] = true;
  }
}

void LoopBody::find_crossing() {
  for (const NodeId id : IdRange(forward_end_, joint_.nodes().end_id())) {
    if (!live_[id]) continue;
    for (const ValueId operand : joint_.node(id).inputs) require(operand);
  }
  for (const ValueId out : carries_out_) require(out);
  for (const ValueId out : results_) require(out);
}

Graph LoopBody::build_forward() const {
  Rewriter rewriter(joint_);
  const size_t inputs = forward_.body().inputs().size();
  for (size_t i = 0; i < inputs; ++i) {
    const GraphInput& input = joint_.inputs()[i];
    rewriter.set(input.value,
                 rewriter.to().add_input(input.name, input.kind, joint_.type(input.value)));
  }
  for (const NodeId id : IdRange(forward_end_)) rewriter.copy_node(id);
  for (const GraphOutput& output : forward_.body().outputs())
    rewriter.to().add_output(output.name, rewriter.at(output.value));
  for (const ValueId value : saved_)
    rewriter.to().add_output(fmt::format("saved {}", rewriter.to().outputs().size()),
                             rewriter.at(value));
  return std::move(rewriter.to());
}

// Copies a node after the recomputed nodes that it reads.
void LoopBody::copy_with_operands(Rewriter& rewriter, NodeId id) {
  for (const ValueId operand : joint_.node(id).inputs)
    if (!rewriter.has(operand)) copy_with_operands(rewriter, joint_.value(operand).producer);
  const NodeId copy = rewriter.copy_node(id);
  if (id >= forward_end_) return;
  rewriter.to().node(copy).remat_clone = true;
  rewriter.to().node(copy).phase = Phase::kBackward;
}

Graph LoopBody::build_backward() {
  Rewriter rewriter(joint_);
  Graph& body = rewriter.to();
  const auto add_input = [&](const char* part, ValueId value) {
    rewriter.set(value, body.add_input(fmt::format("{} {}", part, body.inputs().size()),
                                       InputKind::kLoop, joint_.type(value)));
  };
  add_input("index", forward_.index());
  for (const ValueId value : carries_in_) add_input("carry", value);
  for (const ValueId value : slices_in_) add_input("slice", value);
  for (const ValueId value : saved_) add_input("saved", value);
  for (const size_t i : slices_) add_input("slice", forward_.slice_in(i));
  for (const size_t i : constants_) add_input("constant", forward_.constant_in(i));

  for (const NodeId id : IdRange(forward_end_, joint_.nodes().end_id()))
    if (live_[id]) copy_with_operands(rewriter, id);
  std::vector<ValueId> outputs = carries_out_;
  outputs.insert(outputs.end(), results_.begin(), results_.end());
  for (const ValueId value : outputs) {
    if (!rewriter.has(value)) copy_with_operands(rewriter, joint_.value(value).producer);
    body.add_output(fmt::format("result {}", body.outputs().size()), rewriter.at(value));
  }
  return std::move(body);
}

LoopBody::Built LoopBody::build() {
  find_live();
  find_candidates();
  find_crossing();
  return {.forward_body = std::make_shared<const Graph>(build_forward()),
          .backward_body = std::make_shared<const Graph>(build_backward()),
          .saved = saved_,
          .slices = slices_,
          .constants = constants_};
}

std::vector<ValueId> LoopBody::extend_forward(Graph& outer, NodeId id, const Built& built) const {
  outer.node(id).bodies[0] = built.forward_body;
  std::vector<ValueId> stacked;
  for (const ValueId saved : built.saved) {
    const Type type = stacked_type(joint_.type(saved), forward_.axis(), forward_.count());
    stacked.push_back(outer.add_result(id, type));
    outer.value(stacked.back()).name = joint_.value(saved).name;
  }
  for (const size_t slice : built.slices) stacked.push_back(forward_.stacked(slice));
  return stacked;
}

}  // namespace tessera
