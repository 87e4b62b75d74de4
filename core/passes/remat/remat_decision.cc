// SPDX-License-Identifier: Apache-2.0
#include "core/passes/remat/remat_decision.h"

#include <algorithm>

#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/passes/loop.h"

namespace tessera {
namespace {

bool has_batch_axis(const Graph& graph, const Node& contraction) {
  const Type& a = graph.type(contraction.inputs[0]);
  const Type& b = graph.type(contraction.inputs[1]);
  const Type& result = graph.type(contraction.outputs[0]);
  return std::any_of(result.axes.begin(), result.axes.end(),
                     [&](const Axis& axis) { return a.has(axis.name) && b.has(axis.name); });
}

}  // namespace

bool is_alias(const Node& node) {
  return node.op->op_class == OpClass::kView || node.op->stops_gradient;
}

RematDecision::RematDecision(const Graph& graph, const RematPolicy& policy)
    : graph_(graph), policy_(policy) {
  for (const Node& node : graph.nodes()) {
    if (node.op != &kSaveForBackwardOp) continue;
    ValueId value = node.inputs[0];
    const std::string& name = node.attributes.get<std::string>("name");
    marks_.emplace(value, name);
    // What is marked through a view is what the view looks at.
    for (NodeId producer = graph.value(value).producer;
         producer != kNone && is_alias(graph.node(producer));
         producer = graph.value(value).producer) {
      value = graph.node(producer).inputs[0];
      marks_.emplace(value, name);
    }
  }
}

std::string RematDecision::mark(ValueId value) const {
  const auto found = marks_.find(value);
  return found == marks_.end() ? "" : found->second;
}

bool RematDecision::keeps_loop_result(const Node& node, int32_t result) const {
  const Loop loop(node);
  if (result < loop.carries()) return false;
  const ValueId inner = loop.slice_out(result - loop.carries());
  return loop.body().value(inner).producer != kNone && RematDecision(loop.body(), policy_)(inner);
}

bool RematDecision::operator()(ValueId value) const {
  const Node& producer = graph_.node(graph_.value(value).producer);
  if (is_alias(producer)) return false;
  if (is_repeat(producer) && policy_.kind != RematPolicy::Kind::kSaveNothing &&
      keeps_loop_result(producer, graph_.value(value).result))
    return true;
  const bool contraction = producer.op->op_class == OpClass::kContraction;
  switch (policy_.kind) {
    case RematPolicy::Kind::kSaveEverything:
      return true;
    case RematPolicy::Kind::kSaveNothing:
      return false;
    case RematPolicy::Kind::kSaveNamed:
      return std::find(policy_.names.begin(), policy_.names.end(), mark(value)) !=
             policy_.names.end();
    case RematPolicy::Kind::kSaveContractions:
      return contraction;
    case RematPolicy::Kind::kSaveUnbatchedContractions:
      return contraction && !has_batch_axis(graph_, producer);
  }
  return false;
}

}  // namespace tessera
