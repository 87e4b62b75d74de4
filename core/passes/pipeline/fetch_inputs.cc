// SPDX-License-Identifier: Apache-2.0
#include "core/passes/pipeline/fetch_inputs.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/ops/generator.h"
#include "core/ops/reshard.h"
#include "core/passes/rewrite.h"

namespace tessera {
namespace {

// The value that the stages with a `term` have, on all stages. `reader` needs it first.
ValueId summed(Graph& graph, ValueId term, const Node& reader, const Mesh& mesh, int64_t device) {
  const std::vector<std::string> stage = {std::string(kStageAxis)};
  Node sum;
  sum.op = &kAllReduceOp;
  sum.inputs = {term};
  sum.attributes = {{"mesh_axes", stage},
                    {"reduction", std::string("sum")},
                    {"group", mesh.group(device, stage)},
                    {"index", mesh.stage_of(device)}};
  sum.site = reader.site;
  sum.path = reader.path;
  sum.phase = reader.phase;
  return graph.node(graph.add_node(std::move(sum), {graph.type(term)})).outputs[0];
}

ValueId zeros(Graph& graph, const Type& type, const Node& reader) {
  Node node;
  node.op = &kConstantOp;
  node.attributes = {{"value", 0.0}, {"type", type}};
  node.site = reader.site;
  node.path = reader.path;
  node.phase = reader.phase;
  return graph.node(graph.add_node(std::move(node), {type})).outputs[0];
}

bool is_output(const Graph& graph, ValueId value) {
  return std::ranges::any_of(graph.outputs(), [&](const GraphOutput& output) {
    return !output.is_update && output.value == value;
  });
}

}  // namespace

Graph fetch_inputs(const Graph& lowered, const StageHomes& homes, const Mesh& mesh,
                   int64_t device) {
  const int64_t stage = mesh.stage_of(device);
  const auto readers = consumers(lowered);
  Rewriter rewriter(lowered);
  Graph& fetched = rewriter.to();
  for (const GraphInput& input : lowered.inputs()) {
    if (!is_home(homes, input.name, stage)) continue;
    const Type& type = lowered.type(input.value);
    rewriter.set(input.value, fetched.add_input(input.name, input.kind, type));
    fetched.value(rewriter.at(input.value)).name = lowered.value(input.value).name;
  }
  for (const GraphInput& input : lowered.inputs()) {
    const auto home = homes.find(input.name);
    const std::vector<NodeId>& nodes = readers[input.value];
    if (home == homes.end() || (nodes.empty() && !is_output(lowered, input.value))) continue;
    const Node reader = nodes.empty() ? Node{} : lowered.node(nodes.front());
    const ValueId term = home->second.front() == stage
                             ? rewriter.at(input.value)
                             : zeros(fetched, lowered.type(input.value), reader);
    rewriter.set(input.value, summed(fetched, term, reader, mesh, device));
  }
  for (const NodeId id : lowered.nodes().ids()) rewriter.copy_node(id);
  for (const GraphOutput& output : lowered.outputs()) {
    if (!output.is_update) {
      fetched.add_output(output.name, rewriter.at(output.value));
    } else if (is_home(homes, output.name, stage)) {
      fetched.add_update(output.name, rewriter.at(output.value));
    }
  }
  return std::move(fetched);
}

}  // namespace tessera
