// SPDX-License-Identifier: Apache-2.0
// In two parts, so that equal work is found alike on all devices: first a graph that says where
// shards lie by mesh axes alone (attributes mesh_axes, anchor, before and after), the same for
// every device; then the numbers of one device.
#include "core/passes/spmd/lower.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/passes/rewrite.h"
#include "core/passes/simplify.h"
#include "core/passes/spmd/device_attributes.h"

namespace tessera {
namespace {

bool is_identity(const Graph& graph, const Node& node) {
  return node.op->identity && graph.type(node.inputs[0]).dtype == graph.type(node.outputs[0]).dtype;
}

class Localizer {
 public:
  Localizer(const Graph& graph, const Mesh& mesh, ReshardPlanner& planner)
      : graph_(graph), mesh_(mesh), planner_(planner), rewriter_(graph), local_(rewriter_.to()) {}

  Graph run() {
    for (const GraphInput& input : graph_.inputs()) {
      const ValueId value =
          local_.add_input(input.name, input.kind, local_type(graph_.type(input.value), mesh_));
      local_.value(value).name = graph_.value(input.value).name;
      rewriter_.set(input.value, value);
    }
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      if (is_identity(graph_, node)) {
        become(node.outputs[0], rewriter_.at(node.inputs[0]));
      } else if (node.op->op_class == OpClass::kReshard) {
        lower_reshard(node);
      } else {
        copy(id);
      }
    }
    rewriter_.copy_outputs();
    return std::move(local_);
  }

 private:
  // A value that is the same as another on a device.
  void become(ValueId value, ValueId local) {
    if (local_.value(local).name.empty()) local_.value(local).name = graph_.value(value).name;
    rewriter_.set(value, local);
  }

  void copy(NodeId id) {
    Node node = graph_.node(id);
    std::vector<Type> types;
    for (const ValueId value : node.outputs) types.push_back(local_type(graph_.type(value), mesh_));
    node.attributes = local_attributes(graph_, node, mesh_);
    for (ValueId& value : node.inputs) value = rewriter_.at(value);
    for (auto& body : node.bodies)
      body = std::make_shared<const Graph>(Localizer(*body, mesh_, planner_).run());
    rewriter_.copy_node_as(id, std::move(node), types);
  }

  void lower_reshard(const Node& reshard) {
    const ValueId from = reshard.inputs[0], to = reshard.outputs[0];
    const std::string& given = graph_.value(to).name;
    const std::string name = given.empty() ? graph_.value(from).name : given;
    ValueId value = rewriter_.at(from);
    Type layout = graph_.type(from);
    for (const ReshardStep& step : planner_.plan(layout, graph_.type(to)).steps) {
      Node node = reshard;
      node.op = &step_op(step.kind);
      node.inputs = {value};
      node.attributes = step_attributes(step, layout, mesh_);
      value = local_.node(local_.add_node(std::move(node), {local_type(step.result, mesh_)}))
                  .outputs[0];
      local_.value(value).name = name;
      layout = step.result;
    }
    become(to, value);
  }

  const Graph& graph_;
  const Mesh& mesh_;
  ReshardPlanner& planner_;
  Rewriter rewriter_;
  Graph& local_;
};

// The same graph with the numbers of a device.
Graph for_device(Graph graph, DeviceAttributes& attributes) {
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    Node& node = graph.node(id);
    attributes.fill(graph, node);
    for (auto& body : node.bodies)
      body = std::make_shared<const Graph>(for_device(*body, attributes));
  }
  return graph;
}

}  // namespace

Graph lower(const Graph& graph, const Mesh& mesh, int64_t device, const LinkCosts& costs) {
  CHECK(device >= 0 && device < mesh.num_devices(), "device {} of {}", device, mesh.num_devices());
  ReshardPlanner planner(mesh, costs);
  Graph lowered = dce(cse(dce(Localizer(graph, mesh, planner).run())));
  if (mesh.num_devices() == 1) return lowered;
  DeviceAttributes attributes(mesh, device);
  return for_device(std::move(lowered), attributes);
}

}  // namespace tessera
