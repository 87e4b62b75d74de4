// SPDX-License-Identifier: Apache-2.0
// Dependence: which nodes of a graph depend on values, and on which nodes values depend.
#pragma once

#include <vector>

#include "core/compile/rewrite.h"
#include "core/graph/graph.h"

namespace tessera {

// Whether values depend on a source, directly or not.
class Dependence {
 public:
  explicit Dependence(const Graph& graph) : graph_(graph), depends_(graph.values().size()) {}
  void add_source(ValueId value) { depends_[value] = true; }
  void propagate() {
    for (const Node& node : graph_.nodes())
      if (any_flagged(node.inputs, depends_))
        for (const ValueId value : node.outputs) depends_[value] = true;
  }
  bool of(const Node& node) const { return any_flagged(node.inputs, depends_); }

 private:
  const Graph& graph_;
  ValueFlags depends_;
};

// The nodes that values are computed from.
NodeFlags ancestors(const Graph& graph, const std::vector<ValueId>& values);

}  // namespace tessera
