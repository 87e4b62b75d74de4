// SPDX-License-Identifier: Apache-2.0
#include "core/passes/autodiff/autodiff.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/generator.h"
#include "core/ops/reshard.h"
#include "core/passes/autodiff/activity.h"
#include "core/passes/autodiff/backward.h"
#include "core/passes/loop.h"

namespace tessera {
namespace {

bool any_of(const std::vector<ValueId>& values, const std::vector<bool>& flags) {
  return std::any_of(values.begin(), values.end(),
                     [&](ValueId value) { return flags[static_cast<size_t>(value)]; });
}

std::vector<Tensor> tensors(Graph& graph, const std::vector<ValueId>& values) {
  std::vector<Tensor> result;
  for (const ValueId value : values) result.emplace_back(&graph, value);
  return result;
}

void trace_vjp(Graph& graph, const Node& node, const std::vector<bool>& active,
               Cotangents& cotangents) {
  if (node.op->vjp == nullptr) {
    const ErrorPrefix where(node.site.text());
    fail("{} has no gradient; {}", node.op->name, node.op->instead_of_gradient);
  }
  std::vector<Tensor> output_cotangents;
  for (const ValueId value : node.outputs) output_cotangents.push_back(cotangents.sum(value));
  const std::vector<Tensor> inputs = tensors(graph, node.inputs);
  const std::vector<Tensor> outputs = tensors(graph, node.outputs);
  const std::vector<Tensor> gradients = node.op->vjp(
      {.node = node, .inputs = inputs, .outputs = outputs, .cotangents = output_cotangents});
  CHECK(gradients.size() == node.inputs.size(), "vjp of {} gave {} cotangents for {} operands",
        node.op->name, gradients.size(), node.inputs.size());
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i] && active[static_cast<size_t>(node.inputs[i])])
      cotangents.add(node.inputs[i], gradients[i]);
}

// The first of the nodes [0, end) that reads each value; kNone if none does.
std::vector<NodeId> first_readers(const Graph& graph, NodeId end) {
  std::vector<NodeId> readers(graph.values().size(), kNone);
  for (NodeId id = end - 1; id >= 0; --id)
    for (const ValueId value : graph.node(id).inputs) readers[static_cast<size_t>(value)] = id;
  return readers;
}

// Whom the reduction of a target's gradient serves: the layer that reads the target; of a loop, the
// one in its body.
const Node* served(const Graph& graph, ValueId value, const std::vector<NodeId>& readers) {
  const NodeId reader = readers[static_cast<size_t>(value)];
  if (reader == kNone) return nullptr;
  const Node& node = graph.node(reader);
  if (!is_repeat(node)) return &node;
  const Graph& body = Loop(node).body();
  const auto operand = std::find(node.inputs.begin(), node.inputs.end(), value);
  const auto position = static_cast<size_t>(operand - node.inputs.begin());
  const Node* within =
      served(body, body.inputs()[1 + position].value,  // The loop's index comes first.
             first_readers(body, static_cast<NodeId>(body.nodes().size())));
  return within != nullptr ? within : &node;
}

Tensor zeros(const Type& type) { return constant(0.0, type.dtype, type.axes); }

}  // namespace

void trace_backward(Graph& graph, NodeId end, const std::vector<bool>& active,
                    Cotangents& cotangents) {
  for (NodeId id = end - 1; id >= 0; --id) {
    const Node node = graph.node(id);  // A copy: tracing moves the graph's nodes.
    const bool reached = std::any_of(node.outputs.begin(), node.outputs.end(),
                                     [&](ValueId value) { return cotangents.has(value); });
    if (!reached || !any_of(node.inputs, active) || node.op->stops_gradient) continue;
    const ServeScope serve(node);
    if (is_repeat(node)) {
      trace_repeat_backward(graph, id, active, cotangents);
    } else {
      trace_vjp(graph, node, active, cotangents);
    }
  }
}

std::vector<Tensor> gradients(const Tensor& loss, const std::vector<Tensor>& targets,
                              const Tensor& seed) {
  Graph& graph = traced_graph();
  CHECK(loss.graph() == &graph, "the loss is of another trace");
  if (loss.type() != make_type(DType::kF32, {})) {
    fail("gradients: the loss is {}, expected an f32 scalar that is not partial; {}",
         loss.type().text(), loss.type().partial ? "place(loss)" : "reduce_sum and cast it");
  }
  const PhaseScope phase(Phase::kBackward);
  std::vector<ValueId> wanted;
  for (const Tensor& target : targets) wanted.push_back(imported(target).id());

  const auto end = static_cast<NodeId>(graph.nodes().size());
  const std::vector<bool> active = depends_on(graph, wanted, end);
  Cotangents cotangents(graph, Boundary(graph));
  cotangents.add(loss.id(), seed ? imported(seed) : constant(1.0, DType::kF32));
  trace_backward(graph, end, active, cotangents);

  const std::vector<NodeId> readers = first_readers(graph, end);
  std::vector<Tensor> result;
  for (const ValueId value : wanted) {
    const Type type = graph.type(value);
    if (!is_floating(type.dtype))
      fail("gradients: {} is {}, which has no gradient", graph.describe(value), type.text());
    if (type.partial)
      fail("gradients: {} is partial ({}); place it", graph.describe(value), type.text());
    std::optional<ServeScope> serve;
    if (const Node* reader = served(graph, value, readers)) serve.emplace(*reader);
    Tensor gradient = active[static_cast<size_t>(value)] ? cotangents.sum(value) : Tensor();
    if (!gradient) gradient = zeros(type);
    if (gradient.type() != type)
      gradient = reshard(gradient, type).named("gradient of " + graph.describe(value));
    result.push_back(gradient);
  }
  return result;
}

}  // namespace tessera
