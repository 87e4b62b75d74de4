// SPDX-License-Identifier: Apache-2.0
// Supports programs without a pipeline, such as sampling, in a run with a pipeline: its stages hold
// only their own weights, but such a program needs all of them on every device.
#include <algorithm>
#include <string>
#include <utility>

#include "core/compile/rewrite.h"
#include "core/compile/stages/added_nodes.h"
#include "core/compile/stages/homes.h"

namespace tessera {
namespace {

// Returns the value of the stages with a `term` on all stages. The graph is that of one device.
ValueId summed(Graph& graph, AddedNodes& nodes, ValueId term, const Mesh& mesh, int64_t device) {
  const ValueId sum = nodes.sum_over_stages(term);
  Attributes& attributes = graph.node(graph.value(sum).producer).attributes;
  attributes.set(key::kGroup, mesh.group(device, {std::string(kStageAxis)}));
  attributes.set(key::kIndex, mesh.stage_of(device));
  return sum;
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
  const Consumers readers(lowered);
  Rewriter rewriter(lowered);
  Graph& fetched = rewriter.to();
  for (const GraphInput& input : lowered.inputs())
    if (is_home(homes, input.name, stage)) rewriter.copy_input(input);
  for (const GraphInput& input : lowered.inputs()) {
    const auto home = homes.find(input.name);
    const std::span<const NodeId> nodes = readers[input.value];
    if (home == homes.end() || (nodes.empty() && !is_output(lowered, input.value))) continue;
    const Node reader = nodes.empty() ? Node{} : lowered.node(nodes.front());
    AddedNodes added(fetched, reader);
    const ValueId term = home->second.front() == stage ? rewriter.at(input.value)
                                                       : added.zeros(lowered.type(input.value));
    rewriter.set(input.value, summed(fetched, added, term, mesh, device));
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
