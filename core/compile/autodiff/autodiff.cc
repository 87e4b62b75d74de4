// SPDX-License-Identifier: Apache-2.0
#include "core/compile/autodiff/autodiff.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/compile/remat/loop_body.h"
#include "core/compile/rewrite.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// Returns whether each value is floating and depends on a value in `seeds` through nodes before
// `end`, not counting paths through stop_gradient.
ValueFlags depends_on(const Graph& graph, const std::vector<ValueId>& seeds, NodeId end) {
  ValueFlags active(graph.values().size());
  for (const ValueId seed : seeds) active[seed] = is_floating(graph.type(seed).dtype);
  for (const NodeId id : IdRange(end)) {
    const Node& node = graph.node(id);
    if (node.op->stops_gradient) continue;
    if (!any_flagged(node.inputs, active)) continue;
    for (const ValueId value : node.outputs)
      if (is_floating(graph.type(value).dtype)) active[value] = true;
  }
  return active;
}

// Returns whether each value is `active` and a value in `seeds` depends on it through active
// values.
ValueFlags reached_from(const Graph& graph, const std::vector<ValueId>& seeds,
                        const ValueFlags& active, NodeId end) {
  ValueFlags reached(graph.values().size());
  for (const ValueId seed : seeds) reached[seed] = active[seed];
  for (const NodeId id : IdRange(end).reversed()) {
    const Node& node = graph.node(id);
    if (node.op->stops_gradient) continue;
    if (!any_flagged(node.outputs, reached)) continue;
    for (const ValueId value : node.inputs)
      if (active[value]) reached[value] = true;
  }
  return reached;
}

void trace_backward(Graph& graph, NodeId end, const ValueFlags& active, Cotangents& cotangents);

// Inputs and outputs of the body's backward pass as values of the joint graph, one entry per carry,
// result, constant and slice of the forward loop; kNone if absent.
struct BodyBackward {
  std::vector<ValueId> carry_cotangent_in, carry_cotangent_out;
  std::vector<ValueId> result_cotangent_in;
  std::vector<ValueId> constant_sum_in, constant_sum_out;
  std::vector<ValueId> slice_cotangent;
};

// Makes the gradient of a loop. The backward pass of the body is traced at the end of a copy of the
// body (the joint graph). Forward values that it reads become stacked outputs of the forward loop,
// and a reversed loop runs it. Cotangents of carries are carries, those of stacked operands are
// stacked outputs, and those of constants are accumulated in additional carries.
class RepeatGradient {
 public:
  RepeatGradient(Graph& graph, NodeId id, const ValueFlags& active, Cotangents& cotangents)
      : graph_(graph),
        id_(id),
        node_(graph.node(id)),
        loop_(node_),
        active_(active),
        cotangents_(cotangents),
        joint_(loop_.body()),
        forward_end_(joint_.nodes().end_id()) {}

  void trace() {
    sum_result_cotangents();
    find_active_carries();
    find_reached_carries();
    trace_body();
    split();
  }

 private:
  // Sums in the outer trace, so that each sum is reduced or kept partial as its value requires.
  void sum_result_cotangents() {
    for (size_t k = 0; k < loop_.results(); ++k)
      result_cotangents_.push_back(cotangents_.sum(loop_.result(k)));
  }

  // A carry is active if its initial value or the body's output is: a fixed point over iterations.
  void find_active_carries() {
    std::vector<ValueId> seeds;
    for (size_t i = 0; i < loop_.operands(); ++i)
      if (active_[loop_.operand(i)]) seeds.push_back(loop_.operand_in(i));
    for (size_t before = seeds.size() + 1; before != seeds.size();) {
      before = seeds.size();
      body_active_ = depends_on(joint_, seeds, forward_end_);
      for (size_t i = 0; i < loop_.carries(); ++i)
        if (body_active_[loop_.carry_out(i)] && !body_active_[loop_.carry_in(i)])
          seeds.push_back(loop_.carry_in(i));
    }
  }

  // A carry has a cotangent if the loop's output has one or a later iteration gives it one.
  void find_reached_carries() {
    std::vector<ValueId> seeds;
    for (size_t k = 0; k < loop_.results(); ++k)
      if (result_cotangents_[k]) seeds.push_back(loop_.slice_out(k));
    reached_.assign(loop_.carries(), false);
    for (size_t i = 0; i < loop_.carries(); ++i) {
      if (!cotangents_.has(loop_.last(i)) || !body_active_[loop_.carry_in(i)]) continue;
      reached_[i] = true;
      seeds.push_back(loop_.carry_out(i));
    }
    for (bool grew = true; grew;) {
      grew = false;
      const ValueFlags reached = reached_from(joint_, seeds, body_active_, forward_end_);
      for (size_t i = 0; i < loop_.carries(); ++i) {
        if (reached_[i] || !reached[loop_.carry_in(i)]) continue;
        reached_[i] = grew = true;
        seeds.push_back(loop_.carry_out(i));
      }
    }
  }

  // Appends the body's backward pass to the joint graph.
  void trace_body() {
    const TraceScope scope(joint_, traced_mesh(), traced_rules());
    const PhaseScope phase(Phase::kBackward);
    std::vector<ValueId> carries_in;
    for (size_t i = 0; i < loop_.carries(); ++i) carries_in.push_back(loop_.carry_in(i));
    Cotangents cotangents(joint_, Boundary(joint_, carries_in));

    for (size_t i = 0; i < loop_.carries(); ++i) {
      ValueId in;
      if (reached_[i]) {
        const Tensor cotangent = input(fmt::format("cotangent of carry {}", i), InputKind::kLoop,
                                       cotangent_type(joint_.type(loop_.carry_out(i))));
        cotangents.add(loop_.carry_out(i), cotangent);
        in = cotangent.id();
      }
      body_.carry_cotangent_in.push_back(in);
    }
    for (size_t k = 0; k < loop_.results(); ++k) {
      ValueId in;
      if (const Tensor& outer = result_cotangents_[k]) {
        const Tensor cotangent = input(fmt::format("cotangent of result {}", k), InputKind::kLoop,
                                       slice_type(outer.type()));
        if (body_active_[loop_.slice_out(k)]) {
          cotangents.add(loop_.slice_out(k), cotangent);
          in = cotangent.id();
        }
      }
      body_.result_cotangent_in.push_back(in);
    }
    trace_backward(joint_, forward_end_, body_active_, cotangents);
    collect(cotangents);
  }

  void collect(Cotangents& cotangents) {
    for (size_t i = 0; i < loop_.carries(); ++i) {
      ValueId out;
      if (reached_[i]) {
        const Tensor sum = cotangents.sum(loop_.carry_in(i));
        out = (sum ? sum : zeros(cotangent_type(joint_.type(loop_.carry_in(i))))).id();
      }
      body_.carry_cotangent_out.push_back(out);
    }
    for (size_t i = 0; i < loop_.constants(); ++i) {
      ValueId in, out;
      if (Tensor term = cotangents.sum(loop_.constant_in(i))) {
        // The sum has the type of its terms, so it has the same type in every iteration. Terms in
        // bf16 are summed in f32.
        term = widened_gradient(term, wide_dtype(term.dtype()));
        const Tensor sum =
            input(fmt::format("cotangent of constant {}", i), InputKind::kLoop, term.type());
        in = sum.id();
        out = add(sum, term).id();
      }
      body_.constant_sum_in.push_back(in);
      body_.constant_sum_out.push_back(out);
    }
    for (size_t i = 0; i < loop_.slices(); ++i) {
      const Tensor sum = cotangents.sum(loop_.slice_in(i));
      body_.slice_cotangent.push_back(sum ? sum.id() : ValueId());
    }
  }

  // Splits the joint graph into the forward loop, which saves values, and the backward loop.
  void split() {
    LoopBody backward(joint_, loop_, forward_end_);
    std::vector<Tensor> carries, stacked;
    for (size_t i = 0; i < loop_.carries(); ++i) {
      const ValueId in = body_.carry_cotangent_in[i];
      if (in == kNone) continue;
      const Tensor outer = cotangents_.sum(loop_.last(i));
      carries.push_back(outer ? outer : zeros(joint_.type(in)));
      backward.add_carry(in, body_.carry_cotangent_out[i]);
    }
    for (size_t i = 0; i < loop_.constants(); ++i) {
      const ValueId in = body_.constant_sum_in[i];
      if (in == kNone) continue;
      carries.push_back(zeros(joint_.type(in)));
      backward.add_carry(in, body_.constant_sum_out[i]);
    }
    for (size_t k = 0; k < loop_.results(); ++k) {
      const ValueId in = body_.result_cotangent_in[k];
      if (in == kNone) continue;
      stacked.push_back(result_cotangents_[k]);
      backward.add_slice(in);
    }
    for (const ValueId slice : body_.slice_cotangent)
      if (slice != kNone) backward.add_result(slice);
    launch(backward, carries, std::move(stacked));
  }

  void launch(LoopBody& backward, const std::vector<Tensor>& carries, std::vector<Tensor> stacked) {
    const LoopBody::Built built = backward.build();
    for (const ValueId value : backward.extend_forward(graph_, id_, built))
      stacked.emplace_back(&graph_, value);
    std::vector<Tensor> inputs = carries;
    inputs.insert(inputs.end(), stacked.begin(), stacked.end());
    for (const size_t k : built.constants) inputs.emplace_back(&graph_, loop_.constant(k));
    const Attributes attributes =
        loop_attributes(loop_.axis(), loop_.count(), carries.size(), stacked.size(),
                        built.constants.size(), !loop_.reversed());
    const std::vector<Tensor> outputs =
        trace_node(*node_.op, inputs, attributes, node_.site, {built.backward_body});
    distribute(outputs);
  }

  void distribute(const std::vector<Tensor>& outputs) {
    size_t next = 0;
    for (size_t i = 0; i < loop_.carries(); ++i) {
      if (body_.carry_cotangent_in[i] == kNone) continue;
      const Tensor& cotangent = outputs[next++];
      if (active_[loop_.initial(i)]) cotangents_.add(loop_.initial(i), cotangent);
    }
    for (size_t i = 0; i < loop_.constants(); ++i) {
      if (body_.constant_sum_in[i] == kNone) continue;
      const DType dtype = graph_.type(loop_.constant(i)).dtype;
      cotangents_.add(loop_.constant(i), gradient_cast(outputs[next++], dtype));
    }
    for (size_t i = 0; i < loop_.slices(); ++i)
      if (body_.slice_cotangent[i] != kNone) cotangents_.add(loop_.stacked(i), outputs[next++]);
  }

  Graph& graph_;
  NodeId id_;
  Node node_;  // A copy of the node before changes.
  Loop loop_;
  const ValueFlags& active_;
  Cotangents& cotangents_;
  Graph joint_;  // The body followed by its backward pass.
  NodeId forward_end_;
  std::vector<Tensor> result_cotangents_;
  ValueFlags body_active_;
  std::vector<bool> reached_;
  BodyBackward body_;
};

std::vector<Tensor> tensors(Graph& graph, const std::vector<ValueId>& values) {
  std::vector<Tensor> result;
  for (const ValueId value : values) result.emplace_back(&graph, value);
  return result;
}

void trace_vjp(Graph& graph, const Node& node, const ValueFlags& active, Cotangents& cotangents) {
  if (node.op->vjp == nullptr) {
    const ErrorPrefix where(node.site.text());
    fail("{} has no gradient; {}", node.op->name, node.op->instead_of_gradient);
  }
  std::vector<Tensor> output_cotangents;
  for (const ValueId value : node.outputs) output_cotangents.push_back(cotangents.sum(value));
  const std::vector<Tensor> inputs = tensors(graph, node.inputs);
  const std::vector<Tensor> outputs = tensors(graph, node.outputs);
  const std::vector<Tensor> gradients = node.op->vjp(
      {.node = node, .inputs = inputs, .outputs = outputs, .cotangents = output_cotangents});
  CHECK(gradients.size() == node.inputs.size(), "vjp of {} gave {} cotangents for {} operands",
        node.op->name, gradients.size(), node.inputs.size());
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i] && active[node.inputs[i]]) cotangents.add(node.inputs[i], gradients[i]);
}

// Returns the first of the nodes before `end` that reads each value, or kNone.
IndexedVector<ValueId, NodeId> first_readers(const Graph& graph, NodeId end) {
  IndexedVector<ValueId, NodeId> readers(graph.values().size());
  for (const NodeId id : IdRange(end).reversed())
    for (const ValueId value : graph.node(id).inputs) readers[value] = id;
  return readers;
}

// Returns the node whose source line and layer path the reduction of a target's gradient gets: the
// first reader of the target, in the loop body if that is a loop. Null if nothing reads it.
const Node* served(const Graph& graph, ValueId value,
                   const IndexedVector<ValueId, NodeId>& readers) {
  const NodeId reader = readers[value];
  if (reader == kNone) return nullptr;
  const Node& node = graph.node(reader);
  if (!is_repeat(node)) return &node;
  const Loop loop(node);
  const Graph& body = loop.body();
  const auto operand = std::ranges::find(node.inputs, value);
  const auto position = static_cast<size_t>(operand - node.inputs.begin());
  const Node* within =
      served(body, loop.operand_in(position), first_readers(body, body.nodes().end_id()));
  return within != nullptr ? within : &node;
}

// Walks the nodes before `end` of the traced graph backwards, traces the vjp of each node and adds
// to the cotangents of its active operands.
void trace_backward(Graph& graph, NodeId end, const ValueFlags& active, Cotangents& cotangents) {
  for (const NodeId id : IdRange(end).reversed()) {
    const Node node = graph.node(id);  // A copy: tracing may change the node.
    const bool reached =
        std::ranges::any_of(node.outputs, [&](ValueId value) { return cotangents.has(value); });
    if (!reached || !any_flagged(node.inputs, active) || node.op->stops_gradient) continue;
    const ServeScope serve(node);
    if (is_repeat(node)) {
      RepeatGradient(graph, id, active, cotangents).trace();
    } else {
      trace_vjp(graph, node, active, cotangents);
    }
  }
}

// Returns zeros of this type if the tensor is invalid.
Tensor with_type(const Tensor& gradient, const Type& type, ValueId target) {
  if (!gradient) return zeros(type);
  if (gradient.type() == type) return gradient;
  return reshard(gradient, type).named("gradient of " + traced_graph().describe(target));
}

// Traces gradients; `type_of` gives the type of the gradient of a target.
std::vector<Tensor> trace_gradients(const Tensor& loss, const std::vector<Tensor>& targets,
                                    const Tensor& seed,
                                    const std::function<Type(const Type&)>& type_of) {
  Graph& graph = traced_graph();
  CHECK(loss.graph() == &graph, "the loss belongs to another trace");
  if (loss.type() != make_type(DType::kF32, {}))
    fail("gradients: the loss is {}, expected an f32 scalar that is not partial; {}",
         loss.type().text(), loss.type().partial ? "place(loss)" : "reduce_sum and cast it");
  const PhaseScope phase(Phase::kBackward);
  std::vector<ValueId> wanted;
  for (const Tensor& target : targets) wanted.push_back(imported(target).id());

  const auto end = graph.nodes().end_id();
  const ValueFlags active = depends_on(graph, wanted, end);
  Cotangents cotangents(graph, Boundary(graph));
  cotangents.add(loss.id(), seed ? imported(seed) : constant(1.0, DType::kF32));
  trace_backward(graph, end, active, cotangents);

  const IndexedVector<ValueId, NodeId> readers = first_readers(graph, end);
  std::vector<Tensor> result;
  for (const ValueId value : wanted) {
    const Type type = graph.type(value);
    if (!is_floating(type.dtype))
      fail("gradients: {} is {}, which has no gradient", graph.describe(value), type.text());
    if (type.partial)
      fail("gradients: {} is partial ({}); place it", graph.describe(value), type.text());
    std::optional<ServeScope> serve;
    if (const Node* const reader = served(graph, value, readers)) serve.emplace(*reader);
    const Tensor gradient = active[value] ? cotangents.sum(value) : Tensor();
    result.push_back(with_type(gradient, type_of(type), value));
  }
  return result;
}

}  // namespace

std::vector<Tensor> gradients(const Tensor& loss, const std::vector<Tensor>& targets,
                              const Tensor& seed) {
  return trace_gradients(loss, targets, seed, std::identity());
}

std::vector<Tensor> unreduced_gradients(const Tensor& loss, const std::vector<Tensor>& targets,
                                        const std::vector<std::string>& mesh_axes) {
  const PendingGradientScope pending(mesh_axes);
  return trace_gradients(loss, targets, {},
                         [&](const Type& target) { return unreduced_type(target, mesh_axes); });
}

std::vector<Tensor> reduced_gradients(const std::vector<Tensor>& sums,
                                      const std::vector<Tensor>& targets) {
  CHECK(sums.size() == targets.size(), "{} sums of gradients of {} targets", sums.size(),
        targets.size());
  const Graph& graph = traced_graph();
  const PhaseScope phase(Phase::kUpdate);
  const IndexedVector<ValueId, NodeId> readers = first_readers(graph, graph.nodes().end_id());
  std::vector<Tensor> result;
  for (size_t i = 0; i < sums.size(); ++i) {
    std::optional<ServeScope> serve;
    if (const Node* const reader = served(graph, targets[i].id(), readers)) serve.emplace(*reader);
    result.push_back(with_type(sums[i], targets[i].type(), targets[i].id()));
  }
  return result;
}

}  // namespace tessera
