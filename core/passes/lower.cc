// SPDX-License-Identifier: Apache-2.0
#include "core/passes/lower.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/passes/rewrite.h"
#include "core/passes/simplify.h"

namespace tessera {
namespace {

// Layouts in attributes (of generators and broadcasts) go the way of those in types.
Attributes localized(const Attributes& attributes, const Mesh& mesh) {
  Attributes result;
  for (const auto& [name, value] : attributes.entries()) {
    if (const Type* type = std::get_if<Type>(&value)) {
      result.set(name, local_type(*type, mesh));
    } else if (name == "split") {
      result.set(name, std::vector<std::string>{});
    } else {
      result.set(name, value);
    }
  }
  return result;
}

bool is_identity(const Graph& graph, const Node& node) {
  const std::string_view op = node.op->name;
  if (op == "reshard" || op == "save_for_backward" || op == "stop_gradient") return true;
  return op == "cast" && graph.type(node.inputs[0]).dtype == graph.type(node.outputs[0]).dtype;
}

Graph localize(const Graph& graph, const Mesh& mesh) {
  Rewriter rewriter(graph);
  Graph& local = rewriter.to();
  for (const GraphInput& input : graph.inputs()) {
    const ValueId value =
        local.add_input(input.name, input.kind, local_type(graph.type(input.value), mesh));
    local.value(value).name = graph.value(input.value).name;
    rewriter.set(input.value, value);
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    Node node = graph.node(id);
    if (is_identity(graph, node)) {
      const ValueId same = rewriter.at(node.inputs[0]);
      if (local.value(same).name.empty())
        local.value(same).name = graph.value(node.outputs[0]).name;
      rewriter.set(node.outputs[0], same);
      continue;
    }
    std::vector<Type> types;
    for (const ValueId value : node.outputs) types.push_back(local_type(graph.type(value), mesh));
    for (ValueId& value : node.inputs) value = rewriter.at(value);
    node.attributes = localized(node.attributes, mesh);
    for (auto& body : node.bodies) body = std::make_shared<const Graph>(lower(*body, mesh));
    rewriter.copy_node_as(id, std::move(node), types);
  }
  rewriter.copy_outputs();
  return std::move(local);
}

}  // namespace

Graph lower(const Graph& graph, const Mesh& mesh) {
  if (mesh.num_devices() > 1) {
    fail("this version runs on one device, but the mesh {} has {}; set ici_mesh_shape to ones",
         mesh.text(), mesh.num_devices());
  }
  return drop_dead(merge_equal(drop_dead(localize(graph, mesh))));
}

}  // namespace tessera
