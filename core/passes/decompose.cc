// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "core/graph/decomposition.h"
#include "core/graph/mesh.h"
#include "core/graph/op.h"
#include "core/passes/local_passes.h"
#include "core/passes/rewrite.h"

namespace tessera {
namespace {

class Decomposer {
 public:
  Decomposer(const Graph& graph, const std::function<bool(const OpDef&)>& has_kernel)
      : graph_(graph), has_kernel_(has_kernel), rewriter_(graph) {}

  // Whether there is anything to do, in loop bodies too.
  bool applies() const { return applies(graph_); }

  Graph run() {
    rewriter_.copy_inputs();
    for (const NodeId id : graph_.nodes().ids()) {
      if (is_composite(graph_.node(id)))
        replace(graph_.node(id));
      else
        copy(id);
    }
    rewriter_.copy_outputs();
    return std::move(rewriter_.to());
  }

 private:
  bool is_composite(const Node& node) const {
    return node.op->decomposition != nullptr && !has_kernel_(*node.op);
  }

  bool applies(const Graph& graph) const {
    return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
      return is_composite(node) ||
             std::ranges::any_of(node.bodies, [&](const auto& body) { return applies(*body); });
    });
  }

  void copy(NodeId id) {
    Node node = rewriter_.mapped(id);
    for (auto& body : node.bodies)
      body = std::make_shared<const Graph>(Decomposer(*body, has_kernel_).run());
    rewriter_.add(std::move(node), graph_.node(id).outputs);
  }

  // Copies the nodes of the decomposition into the graph.
  void replace(const Node& node) {
    const Mesh local;
    const Graph body = decomposition_of(graph_, node, local);
    IndexedVector<ValueId, ValueId> outer(body.values().size());
    for (size_t i = 0; i < node.inputs.size(); ++i)
      outer[body.inputs()[i].value] = rewriter_.at(node.inputs[i]);
    for (const Node& inner : body.nodes()) {
      Node made = inner;
      made.remat_clone = node.remat_clone;
      made.outputs.clear();
      for (ValueId& value : made.inputs) value = outer[value];
      const NodeId id = rewriter_.to().add_node(std::move(made), output_types(body, inner));
      for (size_t i = 0; i < inner.outputs.size(); ++i)
        outer[inner.outputs[i]] = rewriter_.to().node(id).outputs[i];
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId value = outer[body.outputs()[i].value];
      rewriter_.to().value(value).name = graph_.value(node.outputs[i]).name;
      rewriter_.set(node.outputs[i], value);
    }
  }

  const Graph& graph_;
  const std::function<bool(const OpDef&)>& has_kernel_;
  Rewriter rewriter_;
};

}  // namespace

Graph decompose(const Graph& lowered, const std::function<bool(const OpDef&)>& has_kernel) {
  Decomposer decomposer(lowered, has_kernel);
  return decomposer.applies() ? cse(decomposer.run()) : lowered;
}

}  // namespace tessera
