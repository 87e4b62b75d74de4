// SPDX-License-Identifier: Apache-2.0
// Tracing: while a TraceScope is alive, op functions on this thread append nodes to its graph.
// Other scopes set the layer path, phase, remat region and source line of these nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/rules.h"

namespace tessera {

// Traces into `graph` on `mesh`. Scopes nest: an inner one traces a loop body (core/ops/repeat.h).
// The arguments must outlive the scope.
class TraceScope {
 public:
  TraceScope(Graph& graph, const Mesh& mesh, const AxisRules& rules);
  ~TraceScope();
  TraceScope& operator=(TraceScope&&) = delete;  // Neither copied nor moved.
};

// Sets a variable of the tracing state while it is alive: a part of the scopes below.
template <typename T>
class Restored {
 public:
  Restored(T& variable, T value)
      : variable_(variable), outer_(std::exchange(variable, std::move(value))) {}
  ~Restored() { variable_ = std::move(outer_); }
  Restored& operator=(Restored&&) = delete;  // Neither copied nor moved.

 private:
  T& variable_;
  T outer_;
};

// The examples of the global batch that a part of it has: first, first + stride, …
struct TracedExamples {
  Tensor first;  // i32 scalar; invalid: the whole batch.
  int64_t stride = 1;
};

// The tracing state of this thread besides the graph, mesh and rules. Scopes set it.
struct TraceState {
  std::string path;   // Layer path.
  SourceSite served;  // Source line of the innermost ServeScope or SiteScope.
  Phase phase = Phase::kForward;
  RematBlockId remat_block;
  int64_t seed = 0;                            // For random ops (core/ops/random.h).
  TracedExamples examples;                     // For random ops.
  std::vector<std::string> pending_mesh_axes;  // For gradients (core/ops/reshard.h).
  bool inspects = false;                       // Whether inspect() traces something.
  // Whether the graph must be the same for every mesh, up to layouts (core/compile/numerics.h).
  bool is_mesh_invariant = false;
};
TraceState& trace_state();

// Sets a member of the tracing state while it is alive.
template <auto member>
class ScopedTraceState {
 public:
  using Value = std::remove_reference_t<decltype(trace_state().*member)>;
  explicit ScopedTraceState(Value value) : restored_(trace_state().*member, std::move(value)) {}

 private:
  Restored<Value> restored_;
};

using MeshInvariantScope = ScopedTraceState<&TraceState::is_mesh_invariant>;

// Return the graph, mesh and rules of the innermost scope; CHECK that there is one.
Graph& traced_graph();
const Mesh& traced_mesh();
const AxisRules& traced_rules();

// Appends ".name" to the layer path. A name such as "x_layers[3]" contains the logical layer index.
// Errors thrown inside include the path.
class PathScope {
 public:
  explicit PathScope(std::string_view name);

 private:
  ErrorContext context_;
  Restored<std::string> path_;
};
const std::string& traced_path();

using PhaseScope = ScopedTraceState<&TraceState::phase>;  // Sets the phase of nodes.

// Forward nodes traced in this scope form one rematerialised region: the backward pass may
// recompute them from the region's inputs and saved values. Nested scopes belong to the outermost
// region.
class RematScope {
 public:
  RematScope();

 private:
  Restored<RematBlockId> block_;
};

// Scope for tracing the gradient or decomposition of `node`: new nodes, and errors, get its source
// line and layer path.
class ServeScope {
 public:
  explicit ServeScope(const Node& node);

 private:
  Restored<SourceSite> site_;
  Restored<std::string> path_;
  ErrorContext context_;
};

// Sets the source line of nodes unless an enclosing ServeScope or SiteScope has set it: an op made
// of other ops cites its caller.
class SiteScope {
 public:
  explicit SiteScope(SourceSite site);

 private:
  Restored<SourceSite> site_;
};

// Puts a layer's own rules before those of the TraceScope in traced_rules(). A nested RulesScope
// replaces it: a layer's rules do not apply to the layers below it.
class RulesScope {
 public:
  explicit RulesScope(const AxisRules& own);

 private:
  AxisRules rules_;
  Restored<const AxisRules*> in_force_;
};

// A tensor of the enclosing trace that a loop body reads, and the input of the body that represents
// it.
struct Capture {
  Tensor outer;
  ValueId inner;
};

// Values of a loop's body that leave it stacked, and the function that gets the stacks.
struct Stacking {
  std::vector<Tensor> values;
  std::function<void(const std::vector<Tensor>& stacked)> then;
};

// Traces the body of a loop. `repeat` opens one, adds the declared inputs (carries, slices), traces
// the body, calls finish() and reads the captured tensors.
class BodyScope {
 public:
  // Adds the first input of the body, the loop index. `axis` and `count` are the leading axis of
  // stacked tensors.
  BodyScope(Graph& body, std::string axis, int64_t count);
  ~BodyScope();
  BodyScope& operator=(BodyScope&&) = delete;  // Neither copied nor moved.

  Tensor index() const;
  Axis axis() const { return {axis_, count_, {}}; }  // The axis of the loop.
  // Returns this iteration's slice of an outer tensor whose leading axis is the axis of the loop.
  Tensor slice(const Tensor& outer);
  // Makes the loop also stack these values of the body along its axis, which leads. `then` is
  // called with the stacks, in the enclosing trace, when the loop has been traced: so results from
  // deep inside a body can leave the loop without passing through its layers.
  void stack(std::vector<Tensor> values, std::function<void(const std::vector<Tensor>&)> then) {
    stackings_.push_back({std::move(values), std::move(then)});
  }
  // Orders the inputs of the body: index, declared inputs, slices(), constants().
  void finish();
  // In order of first use, without repetitions.
  const std::vector<Capture>& slices() const { return slices_; }
  const std::vector<Capture>& constants() const { return constants_; }
  const std::vector<Stacking>& stackings() const { return stackings_; }

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
  std::vector<Stacking> stackings_;
  Restored<RematBlockId> remat_block_;
};
BodyScope* innermost_body();  // Null outside loop bodies.

// Appends a node and returns its outputs, whose types the op infers. Operands of an enclosing trace
// are captured as loop constants. Errors of the type rule include op, path and `site`.
std::vector<Tensor> trace_node(const OpDef& op, const std::vector<Tensor>& inputs,
                               Attributes attributes, SourceSite site,
                               std::vector<std::shared_ptr<const Graph>> bodies = {});
Tensor trace_op(const OpDef& op, std::vector<Tensor> inputs, Attributes attributes,
                SourceSite site);
// Trace an op of one operand, or of two, at the site of the first.
Tensor trace_unary(const OpDef& op, const Operand& x, Attributes attributes = {});
Tensor trace_binary(const OpDef& op, const Operand& a, const Operand& b);

// Returns `tensor` in the innermost trace: itself, or the loop constant that captures it.
Tensor imported(const Tensor& tensor);

// Adds a graph input.
Tensor input(std::string name, InputKind kind, Type type);
void output(std::string name, const Tensor& value);  // Error if partial (place it first).

}  // namespace tessera
