// SPDX-License-Identifier: Apache-2.0
// Tracing: while a TraceScope lives, op functions on this thread append to its graph. Path scopes
// say which layer is speaking; phase and remat scopes mark the nodes traced under them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
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

 private:
  size_t outer_size_;
  ErrorContext context_;
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

// Nodes traced under it serve `node` (its gradient, its decomposition): they take its source
// line and layer path, and errors say them.
class ServeScope {
 public:
  explicit ServeScope(const Node& node);
  ~ServeScope();
  ServeScope(const ServeScope&) = delete;
  ServeScope& operator=(const ServeScope&) = delete;

 private:
  SourceSite outer_site_;
  std::string outer_path_;
  ErrorContext context_;
};

// Nodes traced under it take this source line, unless they serve a node already: an op made of
// others speaks for its caller.
class SiteScope {
 public:
  explicit SiteScope(SourceSite site);
  ~SiteScope();
  SiteScope(const SiteScope&) = delete;
  SiteScope& operator=(const SiteScope&) = delete;

 private:
  SourceSite outer_;
};

// While alive, traced_rules() are a layer's own before those of the TraceScope. A nested one stands
// in its place: a layer's rules are not those of the layers below it.
class RulesScope {
 public:
  explicit RulesScope(const AxisRules& own);
  ~RulesScope();
  RulesScope(const RulesScope&) = delete;
  RulesScope& operator=(const RulesScope&) = delete;

 private:
  AxisRules rules_;
  const AxisRules* outer_;
};

// A tensor of the enclosing trace that a body reads, and the body's input that stands for it.
struct Capture {
  Tensor outer;
  ValueId inner = kNone;
};

// Tracing a loop's body within the enclosing trace: `repeat` opens one, adds its declared inputs
// (carries, slices) to the body, traces it, calls `finish` and reads what the body captured.
class BodyScope {
 public:
  // Adds the body's first input, the loop index. `axis` and `count`: of loop-stacked tensors.
  BodyScope(Graph& body, std::string axis, int64_t count);
  ~BodyScope();
  BodyScope(const BodyScope&) = delete;
  BodyScope& operator=(const BodyScope&) = delete;

  Tensor index() const;
  Axis axis() const { return {axis_, count_, {}}; }  // What it loops along.
  // This iteration's slice of a tensor outside whose leading axis is the loop's.
  Tensor slice(const Tensor& outer);
  // Orders the body's inputs: index and declared ones, then slices(), then constants().
  void finish();
  // In order of first use, each tensor once.
  const std::vector<Capture>& slices() const { return slices_; }
  const std::vector<Capture>& constants() const { return constants_; }

 private:
  friend Tensor imported(const Tensor& tensor);
  Tensor constant(const Tensor& outer);
  Tensor capture(const Tensor& outer, Type type, std::vector<Capture>& captures);

  Graph& body_;
  std::string axis_;
  int64_t count_;
  ValueId index_;
  std::vector<Capture> slices_;
  std::vector<Capture> constants_;
  int32_t outer_remat_;
};
BodyScope* innermost_body();  // Null outside any loop's body.

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
