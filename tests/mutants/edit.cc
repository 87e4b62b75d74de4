// SPDX-License-Identifier: Apache-2.0
#include "tests/mutants/edit.h"

#include <utility>

#include "core/graph/op.h"

namespace tessera {

NodeId Site::reader_id() const {
  if (node().outputs.empty()) return kNone;
  const std::span<const NodeId> all = readers[node().outputs[0]];
  return all.empty() ? NodeId() : all.front();
}

const Node* Site::reader() const {
  const NodeId id = reader_id();
  return id == kNone ? nullptr : &graph.node(id);
}

std::vector<ValueId> Edit::add(Node node) {
  Graph& graph = rewriter_.to();
  std::vector<Type> types;
  std::vector<std::string> names;
  for (const ValueId input : node.inputs) {
    types.push_back(graph.type(input));
    names.push_back(graph.describe(input));
  }
  const Mesh local;
  std::vector<SharedType> results;
  for (Type& type :
       node.op->infer({node.op->name, local, types, node.attributes, names, node.bodies}))
    results.emplace_back(std::move(type));
  node.outputs.clear();
  return graph.node(graph.add_node(std::move(node), results)).outputs;
}

ValueId Edit::add(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes) {
  Node node;
  node.op = &op;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  node.site = site_.node().site;
  node.path = site_.node().path;
  node.phase = site_.node().phase;
  return add(std::move(node)).front();
}

ValueId Edit::again(ValueId operand, const Attributes& attributes) {
  std::vector<ValueId> inputs = {operand};
  for (size_t i = 1; i < site_.node().inputs.size(); ++i) inputs.push_back(this->operand(i));
  return add(*site_.node().op, std::move(inputs), attributes);
}

Graph changed(const Site& site, const Change& change) {
  Edit edit(site);
  return edit.rewriter().rewritten(site.graph.nodes().ids(), [&](NodeId id) {
    if (!change.apply(edit, id)) edit.rewriter().copy_node(id);
  });
}

}  // namespace tessera
