// SPDX-License-Identifier: Apache-2.0
#include "core/passes/remat/loop_body.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "core/graph/op.h"
#include "core/passes/remat/recompute_candidates.h"

namespace tessera {
namespace {

// Values that are the same in every iteration: no carry, slice or index among what they come from.
std::vector<bool> find_invariant(const Graph& joint, const Loop& loop, NodeId forward_nodes) {
  std::vector<bool> invariant(joint.values().size(), false);
  for (int64_t i = 0; i < loop.constants(); ++i)
    invariant[static_cast<size_t>(loop.constant_in(i))] = true;
  for (NodeId id = 0; id < forward_nodes; ++id) {
    const Node& node = joint.node(id);
    const bool all = std::all_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId v) { return invariant[static_cast<size_t>(v)]; });
    for (const ValueId value : node.outputs) invariant[static_cast<size_t>(value)] = all;
  }
  return invariant;
}

bool is_cheap(const Node& node) {
  switch (node.op->op_class) {
    case OpClass::kElementwise:
    case OpClass::kGenerator:
    case OpClass::kDataMovement:
    case OpClass::kView:
      return true;
    case OpClass::kReduction:
    case OpClass::kContraction:
    case OpClass::kReshard:
    case OpClass::kCollective:
    case OpClass::kLoop:
    case OpClass::kOther:
      return false;
  }
  return false;
}

}  // namespace

LoopBody::LoopBody(const Graph& joint, const Loop& forward, NodeId forward_nodes)
    : joint_(joint),
      forward_(forward),
      forward_nodes_(forward_nodes),
      sources_(joint.values().size(), Source::kUnknown),
      invariant_(find_invariant(joint, forward, forward_nodes)) {}

bool LoopBody::saves(ValueId value) const {
  if (save_) return save_(value);
  const Node& producer = joint_.node(joint_.value(value).producer);
  return producer.op->op_class != OpClass::kView && !is_cheap_invariant(value) &&
         !cheap_[static_cast<size_t>(value)];
}

void LoopBody::find_cheap() {
  const auto stays = [&](ValueId value) {
    for (int64_t i = 0; i < forward_.carries(); ++i)
      if (value == forward_.carry_in(i)) return false;
    return true;
  };
  cheap_ = cheap_to_recompute(
      joint_, {.is_forward = [&](NodeId id) { return id < forward_nodes_; },
               .is_backward = [&](NodeId id) { return live_[static_cast<size_t>(id)]; },
               .stays = stays});
}

bool LoopBody::is_cheap_invariant(ValueId value) const {
  return invariant_[static_cast<size_t>(value)] &&
         is_cheap(joint_.node(joint_.value(value).producer));
}

void LoopBody::add_carry(ValueId in, ValueId out) {
  carries_in_.push_back(in);
  carries_out_.push_back(out);
}

void LoopBody::add_slice(ValueId in) { slices_in_.push_back(in); }
void LoopBody::add_result(ValueId out) { results_.push_back(out); }

LoopBody::Source LoopBody::classify(ValueId value) {
  const NodeId producer = joint_.value(value).producer;
  if (producer >= forward_nodes_) return Source::kBackward;
  if (producer != kNone) return saves(value) ? Source::kSaved : Source::kAgain;
  if (value == forward_.index()) return Source::kIndex;
  for (int64_t i = 0; i < forward_.carries(); ++i)
    if (value == forward_.carry_in(i)) return Source::kSaved;
  for (int64_t i = 0; i < forward_.slices(); ++i) {
    if (value != forward_.slice_in(i)) continue;
    slices_.push_back(i);
    return Source::kSlice;
  }
  for (int64_t i = 0; i < forward_.constants(); ++i) {
    if (value != forward_.constant_in(i)) continue;
    constants_.push_back(i);
    return Source::kConstant;
  }
  return Source::kBackward;  // An input that backward tracing added.
}

// Decides where a value that the backward pass reads comes from, and what that takes in turn.
void LoopBody::require(ValueId value) {
  Source& source = sources_[static_cast<size_t>(value)];
  if (source != Source::kUnknown) return;
  source = classify(value);
  if (source == Source::kSaved) saved_.push_back(value);
  if (source == Source::kAgain)
    for (const ValueId operand : joint_.node(joint_.value(value).producer).inputs) require(operand);
}

// Of the backward nodes only those that a result depends on: a vjp also gives what nobody asked
// for.
void LoopBody::find_live() {
  const auto end = static_cast<NodeId>(joint_.nodes().size());
  live_.assign(static_cast<size_t>(end), false);
  std::vector<bool> wanted(joint_.values().size(), false);
  for (const ValueId out : carries_out_) wanted[static_cast<size_t>(out)] = true;
  for (const ValueId out : results_) wanted[static_cast<size_t>(out)] = true;
  for (NodeId id = end - 1; id >= forward_nodes_; --id) {
    const Node& node = joint_.node(id);
    const bool used = std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueId v) { return wanted[static_cast<size_t>(v)]; });
    live_[static_cast<size_t>(id)] = used;
    if (!used) continue;
    for (const ValueId operand : node.inputs) wanted[static_cast<size_t>(operand)] = true;
  }
}

void LoopBody::find_crossing() {
  for (NodeId id = forward_nodes_; id < static_cast<NodeId>(joint_.nodes().size()); ++id) {
    if (!live_[static_cast<size_t>(id)]) continue;
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
  for (NodeId id = 0; id < forward_nodes_; ++id) rewriter.copy_node(id);
  for (const GraphOutput& output : forward_.body().outputs())
    rewriter.to().add_output(output.name, rewriter.at(output.value));
  for (const ValueId value : saved_)
    rewriter.to().add_output(fmt::format("saved {}", rewriter.to().outputs().size()),
                             rewriter.at(value));
  return std::move(rewriter.to());
}

// A node with what it reads, as far as that is computed again and not there yet.
void LoopBody::copy_with_operands(Rewriter& rewriter, NodeId id) {
  for (const ValueId operand : joint_.node(id).inputs)
    if (!rewriter.has(operand)) copy_with_operands(rewriter, joint_.value(operand).producer);
  const NodeId copy = rewriter.copy_node(id);
  if (id >= forward_nodes_) return;
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
  for (const int64_t i : slices_) add_input("slice", forward_.slice_in(i));
  for (const int64_t i : constants_) add_input("constant", forward_.constant_in(i));

  for (NodeId id = forward_nodes_; id < static_cast<NodeId>(joint_.nodes().size()); ++id)
    if (live_[static_cast<size_t>(id)]) copy_with_operands(rewriter, id);
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
  find_cheap();
  find_crossing();
  Graph forward = build_forward();
  Graph backward = build_backward();
  return {.forward_body = std::move(forward),
          .backward_body = std::move(backward),
          .saved = saved_,
          .slices = slices_,
          .constants = constants_};
}

}  // namespace tessera
