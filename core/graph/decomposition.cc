// SPDX-License-Identifier: Apache-2.0
#include "core/graph/decomposition.h"

#include <vector>

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
  const AxisRules no_rules;
  Graph result;
  const TraceScope trace(result, mesh, no_rules);
  const ServeScope serve(node);  // Random keys come from the node's path.
  const PhaseScope phase(node.phase);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    inputs.push_back(
        input(fmt::format("{}", i), InputKind::kLoop, without_layout(graph.type(node.inputs[i]))));
  const std::vector<Tensor> outputs = node.op->decomposition(node, inputs);
  for (size_t i = 0; i < outputs.size(); ++i)
    result.add_output(fmt::format("{}", i), imported(outputs[i]).id());
  return result;
}

}  // namespace tessera
