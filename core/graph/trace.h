// SPDX-License-Identifier: Apache-2.0
// Tracing: while a TraceScope lives, op functions on this thread append to its graph. Path scopes
// say which layer is speaking; phase and remat scopes mark the nodes traced under them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/rules.h"
#include "core/graph/tensor.h"

namespace tessera {

// Tracing into `graph` on `mesh`. Scopes nest: an inner one traces a body (see ops/repeat.h).
// The references must outlive the scope.
class TraceScope {
 public:
  TraceScope(Graph& graph, const Mesh& mesh, const AxisRules& rules);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
};

// The graph, mesh and rules now traced into; CHECKs that there are any.
Graph& traced_graph();
const Mesh& traced_mesh();
const AxisRules& traced_rules();
bool tracing();

// Appends "name" (joined with '.') to the layer path; a name "x_layers[3]" carries its logical
// layer index. Errors raised inside say the path.
class PathScope {
 public:
  explicit PathScope(std::string_view name);
  ~PathScope();
  PathScope(const PathScope&) = delete;
  PathScope& operator=(const PathScope&) = delete;
};
const std::string& traced_path();

// Nodes traced under it are of this phase.
class PhaseScope {
 public:
  explicit PhaseScope(Phase phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Phase outer_;
};

// Nodes traced under it (in the forward phase) form one checkpointed region: the backward pass may
// recompute them from the region's inputs and its saved values. Nested scopes are one region.
class RematScope {
 public:
  RematScope();
  ~RematScope();
  RematScope(const RematScope&) = delete;
  RematScope& operator=(const RematScope&) = delete;

 private:
  int32_t outer_;
};

// Appends a node: infers its types (errors carry op, path and `site`), verifies them against the
// mesh, and returns its outputs. Operands from an enclosing trace are captured as loop constants.
std::vector<Tensor> trace_node(const OpDef& op, std::vector<Tensor> inputs, Attributes attributes,
                               SourceSite site,
                               std::vector<std::shared_ptr<const Graph>> bodies = {});
Tensor trace_op(const OpDef& op, std::vector<Tensor> inputs, Attributes attributes,
                SourceSite site);

// `tensor` as seen from the innermost trace: itself, or the loop constant that captures it.
Tensor imported(const Tensor& tensor);

// Graph inputs. `parameter` places nothing: layers use Layer::param (layers/layer.h), which does.
Tensor input(std::string name, InputKind kind, Type type);
void output(std::string name, const Tensor& value);  // Error if partial (place it first).

}  // namespace tessera
