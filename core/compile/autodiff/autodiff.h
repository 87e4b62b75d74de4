// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation on global arrays, appended to the trace. Layouts of cotangents
// follow the boundary rule (class Boundary), so no layer writes a collective for its backward pass.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// Returns gradients of `loss` (an f32 scalar, not partial) with respect to `targets`, times `seed`
// (an f32 scalar; 1 if invalid). Each has exactly the type of its target (layout, axis order,
// dtype) and is zero if the loss does not depend on the target. Nodes are traced in
// Phase::kBackward with the source line and path of the forward node they belong to. Error that
// names op, path and line if an op has no gradient.
std::vector<Tensor> gradients(const Tensor& loss, const std::vector<Tensor>& targets,
                              const Tensor& seed = {});

// Returns the type of a gradient that is a pending sum over those of `mesh_axes` that do not split
// its target.
Type unreduced_type(const Type& target, const std::vector<std::string>& mesh_axes);

// Returns the gradients with these types. A loop over microbatches adds such terms, and their sum
// is reduced once.
std::vector<Tensor> unreduced_gradients(const Tensor& loss, const std::vector<Tensor>& targets,
                                        const std::vector<std::string>& mesh_axes);

// Reduces sums of unreduced gradients to gradients of `targets`. Traced in Phase::kUpdate, each
// with the source line and path of the first op that reads the target.
std::vector<Tensor> reduced_gradients(const std::vector<Tensor>& sums,
                                      const std::vector<Tensor>& targets);

// Cotangents of the values of one graph (cotangents.cc): how contributions are summed, and where a
// sum over the mesh is computed. Along each mesh axis a cotangent is sharded if its primal is,
// replicated if its primal is partial, and replicated or partial if its primal is replicated.

// Returns the type of a cotangent without pending sums: that of the value, not partial.
Type cotangent_type(const Type& primal);

// Gives `contribution` the axis order, dtype and splits of a cotangent of `primal`. It stays
// partial over mesh axes along which `primal` is replicated.
Tensor as_cotangent(const Tensor& contribution, const Type& primal);

// The boundary rule: a cotangent may stay partial at a value that is produced by a reshard, is an
// input of the graph not in `reduced` (the carries of a loop), or is a linear view of such a value,
// or one plus a constant. This turns the all-reduce of an FSDP gradient into a reduce-scatter.
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
  Cotangents(Graph& graph, Boundary boundary) : graph_(graph), boundary_(std::move(boundary)) {}

  void add(ValueId value, const Tensor& contribution);
  bool has(ValueId value) const { return contributions_.contains(value); }
  // Returns the sum of the contributions, reduced over the mesh unless the boundary rule keeps it
  // partial. Contributions of equal layout are added first, so that there is one reduction. Invalid
  // if there are no contributions.
  Tensor sum(ValueId value);

 private:
  Graph& graph_;
  Boundary boundary_;
  std::map<ValueId, std::vector<Tensor>> contributions_;
};

}  // namespace tessera
