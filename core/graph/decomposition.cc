// SPDX-License-Identifier: Apache-2.0
#include "core/graph/decomposition.h"

#include <fmt/core.h>

#include "core/graph/op.h"
#include "core/graph/rules.h"
#include "core/graph/trace.h"

namespace tessera {
namespace {

Type without_layout(Type type) {
  for (Axis& axis : type.axes) axis.split.clear();
  type.partial = {};
  return type;
}

}  // namespace

Graph decomposition_of(const Graph& graph, const Node& node, const Mesh& mesh) {
  std::vector<Type> operands;
  for (const ValueId value : node.inputs) operands.push_back(without_layout(graph.type(value)));
  return traced_for(node, operands, mesh, [&](std::span<const Tensor> inputs) {
    return node.op->decomposition(node, inputs);
  });
}

Graph traced_for(const Node& node, const std::vector<Type>& operands, const Mesh& mesh,
                 const std::function<std::vector<Tensor>(std::span<const Tensor>)>& trace) {
  const AxisRules no_rules;
  Graph result;
  const TraceScope scope(result, mesh, no_rules);
  const ServeScope serve(node);  // Random keys come from the node's path.
  const PhaseScope phase(node.phase);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < operands.size(); ++i)
    inputs.push_back(input(fmt::format("{}", i), InputKind::kLoop, operands[i]));
  const std::vector<Tensor> outputs = trace(inputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    result.add_output(fmt::format("{}", i), imported(outputs[i]).id());
  return result;
}

}  // namespace tessera
