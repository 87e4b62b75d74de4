// SPDX-License-Identifier: Apache-2.0
// What the values of a graph of one device are computed from, as far as bounds of --search need it:
// which launches planning may run earlier than the graph has them, and which sizes differ between
// programs that divide a batch among equally many groups of devices.
#pragma once

#include <unordered_map>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// The mesh axes that share a batch among groups of devices.
bool divides_batch(std::string_view mesh_axis);

class ValueOrigins {
 public:
  // The graph outlives it.
  ValueOrigins(const Graph& graph, const Mesh& mesh);

  // Whether a value comes from parameters and state alone, through collectives and inexpensive ops:
  // planning may compute it at any earlier time (overlap() of core/passes/memory/step_plan.h).
  bool is_early(const Graph& graph, ValueId value) const { return of(graph).early[value]; }

  // Whether a node costs the same, and has results of the same sizes, in each program with the same
  // local activations, however parameters and state are divided along the axes of the batch. It has
  // an operand that depends on the batch, and none that comes from a sum over groups of devices.
  bool is_common(const Graph& graph, const Node& node) const;
  bool is_common(const Graph& graph, ValueId value) const { return !of(graph).differs[value]; }

 private:
  struct Flags {
    ValueFlags early;
    ValueFlags differs;  // Its size depends on how parameters and state are divided.
    bool is_new = true;
  };
  struct Origin {
    bool is_early = false, differs = false;
  };

  const Flags& of(const Graph& graph) const { return flags_.at(&graph); }
  bool crosses_batch(const Node& node) const;
  // Adds what is known of the inputs, and then of all values.
  const Flags& walk(const Graph& graph, const std::vector<Origin>& inputs);
  void walk_loop(const Node& node, Flags& flags);
  void walk_pipeline(const Node& node, Flags& flags);
  void set_results(const Node& node, Flags& flags) const;

  const Mesh& mesh_;
  std::unordered_map<const Graph*, Flags> flags_;
};

}  // namespace tessera
