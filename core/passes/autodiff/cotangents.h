// SPDX-License-Identifier: Apache-2.0
// Cotangents of the values of one graph: how contributions are added up, and where a sum over the
// mesh is carried out. Per mesh axis a cotangent is sharded as its primal, replicated where that is
// partial, and replicated or partial where that is replicated.
#pragma once

#include <map>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/tensor.h"

namespace tessera {

// The type of a value's cotangent when nothing of it is pending: the value's own, not partial.
Type cotangent_type(const Type& primal);

// `contribution` with the axis order, dtype and splits of a cotangent of `primal`; what is partial
// over mesh axes on which `primal` is replicated stays so.
Tensor as_cotangent(const Tensor& contribution, const Type& primal);

// Whether a cotangent may stay partial at this value: it is produced by a reshard, is an input of
// the graph, or is a linear one-input view of such a value. `reduced` inputs (a loop's carries)
// are not.
class Boundary {
 public:
  explicit Boundary(const Graph& graph, std::vector<ValueId> reduced = {});
  bool keeps_partial(ValueId value) const;

 private:
  const Graph& graph_;
  std::vector<ValueId> reduced_;
};

// All calls trace into `graph`.
class Cotangents {
 public:
  Cotangents(Graph& graph, Boundary boundary) : graph_(graph), boundary_(boundary) {}

  void add(ValueId value, const Tensor& contribution);
  bool has(ValueId value) const { return contributions_.contains(value); }
  // The sum of what was added, reduced over the mesh unless the value is a boundary. Contributions
  // of equal layout are added first, and the mesh is reduced over once. Invalid if there is none.
  Tensor sum(ValueId value);

 private:
  Graph& graph_;
  Boundary boundary_;
  std::map<ValueId, std::vector<Tensor>> contributions_;
};

}  // namespace tessera
