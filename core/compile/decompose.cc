// SPDX-License-Identifier: Apache-2.0
#include "core/compile/decompose.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/compile/rewrite.h"
#include "core/compile/simplify.h"
#include "core/graph/decomposition.h"

namespace tessera {
namespace {

class Decomposer {
 public:
  Decomposer(const Graph& graph, const std::function<bool(const OpDef&)>& has_kernel)
      : graph_(graph), has_kernel_(has_kernel), rewriter_(graph) {}

  // Whether there is anything to do, in loop bodies too.
  bool applies() const { return applies(graph_); }

  Graph run() {
    return rewriter_.rewritten(graph_.nodes().ids(), [&](NodeId id) {
      if (is_composite(graph_.node(id)))
        rewriter_.replace(graph_.node(id),
                          decompose(decomposition_of(graph_, graph_.node(id), {}), has_kernel_));
      else
        copy(id);
    });
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

  const Graph& graph_;
  const std::function<bool(const OpDef&)>& has_kernel_;
  Rewriter rewriter_;
};

}  // namespace

Graph decompose(Graph lowered, const std::function<bool(const OpDef&)>& has_kernel) {
  Decomposer decomposer(lowered, has_kernel);
  if (!decomposer.applies()) return lowered;
  return cse(decomposer.run());
}

}  // namespace tessera
