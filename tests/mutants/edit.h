// SPDX-License-Identifier: Apache-2.0
// One change of a lowered graph: where it is, what it does, and the copy of the graph in which it
// does it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/compile/rewrite.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// A node of a device's graph, or of a body in it.
struct Site {
  const Graph& graph;
  NodeId id;
  const Consumers& readers;
  const Mesh& mesh;
  int64_t device = 0;

  const Node& node() const { return graph.node(id); }
  // The first node that reads the result; null: none.
  const Node* reader() const;
  NodeId reader_id() const;
};

// Copies a graph with a change at one node. `site` must outlive it.
class Edit {
 public:
  explicit Edit(const Site& site) : site_(site), rewriter_(site.graph) {}

  const Site& site() const { return site_; }
  Rewriter& rewriter() { return rewriter_; }
  // A value of the original graph in the copy.
  ValueId at(ValueId original) const { return rewriter_.at(original); }
  ValueId operand(size_t i = 0) const { return at(site_.node().inputs[i]); }
  const Type& type(ValueId value) const { return rewriter_.to().type(value); }

  // Add a node with the types that its rule infers; Error if the rule refuses it. The first has the
  // source line and the path of the site.
  ValueId add(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes = {});
  std::vector<ValueId> add(Node node);
  // Adds the site's op, with other attributes or its own, on another operand.
  ValueId again(ValueId operand, const Attributes& attributes);
  ValueId again(ValueId operand) { return again(operand, site_.node().attributes); }
  // The result of the site is this value of the copy.
  void result(ValueId value) { rewriter_.set(site_.node().outputs[0], value); }

 private:
  const Site& site_;
  Rewriter rewriter_;
};

// A change that can be made at a site. Equal sites of all devices have equal changes.
struct Change {
  std::string kind;  // "delete reduction"
  std::string how;   // "own slice": one of several of this kind at the site.
  // Called for each node; returns whether it has put something in its place.
  std::function<bool(Edit& edit, NodeId id)> apply;
  bool is_none = false;  // The graph of this device stays as it is.
};

// Returns the graph with the change.
Graph changed(const Site& site, const Change& change);

}  // namespace tessera
