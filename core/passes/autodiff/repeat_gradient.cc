// SPDX-License-Identifier: Apache-2.0
// The gradient of a loop. The body's backward pass is traced at the end of a copy of the body; what
// it reads of the forward part crosses over as stacked outputs of the forward loop, and a reversed
// loop runs it. Cotangents of carries are carries, of stacked operands are stacked outputs; those
// of constants are added up in carries of their own.
#include <memory>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reshard.h"
#include "core/passes/autodiff/activity.h"
#include "core/passes/autodiff/backward.h"
#include "core/passes/loop.h"
#include "core/passes/remat/loop_body.h"

namespace tessera {
namespace {

bool flag_of(const std::vector<bool>& flags, ValueId value) {
  return flags[static_cast<size_t>(value)];
}

Tensor zeros_of(const Type& type) {
  const Tensor zero = constant(0.0, type.dtype, type.axes);
  return type.partial ? reshard(zero, type) : zero;
}

// What flows into the body's backward pass and what it gives, as values of the joint graph; kNone
// where there is none. One entry per carry, result, constant and slice of the forward loop.
struct BodyBackward {
  std::vector<ValueId> carry_cotangent_in, carry_cotangent_out;
  std::vector<ValueId> result_cotangent_in;
  std::vector<ValueId> constant_sum_in, constant_sum_out;
  std::vector<ValueId> slice_cotangent;
};

class RepeatGradient {
 public:
  RepeatGradient(Graph& graph, NodeId id, const std::vector<bool>& active, Cotangents& cotangents)
      : graph_(graph),
        id_(id),
        node_(graph.node(id)),
        loop_(node_),
        active_(active),
        cotangents_(cotangents),
        joint_(loop_.body()),
        forward_nodes_(static_cast<NodeId>(joint_.nodes().size())) {}

  void trace() {
    sum_result_cotangents();
    find_active_carries();
    find_reached_carries();
    trace_body();
    split();
  }

 private:
  // Reduced or kept partial as each result's value asks, in the outer trace.
  void sum_result_cotangents() {
    for (int64_t k = 0; k < loop_.results(); ++k)
      result_cotangents_.push_back(cotangents_.sum(loop_.result(k)));
  }

  // A carry is active if what enters or what the body hands on is: a fixed point over iterations.
  void find_active_carries() {
    std::vector<ValueId> seeds;
    for (int64_t i = 0; i < loop_.carries(); ++i)
      if (flag_of(active_, loop_.initial(i))) seeds.push_back(loop_.carry_in(i));
    for (int64_t i = 0; i < loop_.slices(); ++i)
      if (flag_of(active_, loop_.stacked(i))) seeds.push_back(loop_.slice_in(i));
    for (int64_t i = 0; i < loop_.constants(); ++i)
      if (flag_of(active_, loop_.constant(i))) seeds.push_back(loop_.constant_in(i));
    for (size_t before = seeds.size() + 1; before != seeds.size();) {
      before = seeds.size();
      body_active_ = depends_on(joint_, seeds, forward_nodes_);
      for (int64_t i = 0; i < loop_.carries(); ++i)
        if (flag_of(body_active_, loop_.carry_out(i)) && !flag_of(body_active_, loop_.carry_in(i)))
          seeds.push_back(loop_.carry_in(i));
    }
  }

  // Likewise a carry has a cotangent if the loop's output has one or a later iteration gives one.
  void find_reached_carries() {
    std::vector<ValueId> seeds;
    for (int64_t k = 0; k < loop_.results(); ++k)
      if (result_cotangents_[static_cast<size_t>(k)]) seeds.push_back(loop_.slice_out(k));
    reached_.assign(static_cast<size_t>(loop_.carries()), false);
    for (int64_t i = 0; i < loop_.carries(); ++i) {
      if (!cotangents_.has(loop_.last(i)) || !flag_of(body_active_, loop_.carry_in(i))) continue;
      reached_[static_cast<size_t>(i)] = true;
      seeds.push_back(loop_.carry_out(i));
    }
    for (bool grew = true; grew;) {
      grew = false;
      const std::vector<bool> reached = reached_from(joint_, seeds, body_active_, forward_nodes_);
      for (int64_t i = 0; i < loop_.carries(); ++i) {
        if (reached_[static_cast<size_t>(i)] || !flag_of(reached, loop_.carry_in(i))) continue;
        reached_[static_cast<size_t>(i)] = grew = true;
        seeds.push_back(loop_.carry_out(i));
      }
    }
  }

  // Appends the body's backward pass to the joint graph.
  void trace_body() {
    const TraceScope scope(joint_, traced_mesh(), traced_rules());
    const PhaseScope phase(Phase::kBackward);
    std::vector<ValueId> carries_in;
    for (int64_t i = 0; i < loop_.carries(); ++i) carries_in.push_back(loop_.carry_in(i));
    Cotangents cotangents(joint_, Boundary(joint_, carries_in));

    for (int64_t i = 0; i < loop_.carries(); ++i) {
      ValueId in = kNone;
      if (reached_[static_cast<size_t>(i)]) {
        const Tensor cotangent = input(fmt::format("cotangent of carry {}", i), InputKind::kLoop,
                                       cotangent_type(joint_.type(loop_.carry_out(i))));
        cotangents.add(loop_.carry_out(i), cotangent);
        in = cotangent.id();
      }
      body_.carry_cotangent_in.push_back(in);
    }
    for (int64_t k = 0; k < loop_.results(); ++k) {
      ValueId in = kNone;
      if (const Tensor& outer = result_cotangents_[static_cast<size_t>(k)]) {
        const Tensor cotangent = input(fmt::format("cotangent of result {}", k), InputKind::kLoop,
                                       slice_type(outer.type()));
        if (flag_of(body_active_, loop_.slice_out(k))) {
          cotangents.add(loop_.slice_out(k), cotangent);
          in = cotangent.id();
        }
      }
      body_.result_cotangent_in.push_back(in);
    }
    trace_backward(joint_, forward_nodes_, body_active_, cotangents);
    collect(cotangents);
  }

  void collect(Cotangents& cotangents) {
    for (int64_t i = 0; i < loop_.carries(); ++i) {
      ValueId out = kNone;
      if (reached_[static_cast<size_t>(i)]) {
        const Tensor sum = cotangents.sum(loop_.carry_in(i));
        out = (sum ? sum : zeros_of(cotangent_type(joint_.type(loop_.carry_in(i))))).id();
      }
      body_.carry_cotangent_out.push_back(out);
    }
    for (int64_t i = 0; i < loop_.constants(); ++i) {
      ValueId in = kNone, out = kNone;
      if (const Tensor term = cotangents.sum(loop_.constant_in(i))) {
        // The type of the running sum is that of its terms, so it is the same in every iteration.
        const Tensor sum =
            input(fmt::format("cotangent of constant {}", i), InputKind::kLoop, term.type());
        in = sum.id();
        out = add(sum, term).id();
      }
      body_.constant_sum_in.push_back(in);
      body_.constant_sum_out.push_back(out);
    }
    for (int64_t i = 0; i < loop_.slices(); ++i) {
      const Tensor sum = cotangents.sum(loop_.slice_in(i));
      body_.slice_cotangent.push_back(sum ? sum.id() : kNone);
    }
  }

  // Parts the joint graph into the forward loop, which saves, and the backward one.
  void split() {
    LoopBody backward(joint_, loop_, forward_nodes_);
    std::vector<Tensor> carries, stacked;
    for (int64_t i = 0; i < loop_.carries(); ++i) {
      const ValueId in = body_.carry_cotangent_in[static_cast<size_t>(i)];
      if (in == kNone) continue;
      const Tensor outer = cotangents_.sum(loop_.last(i));
      carries.push_back(outer ? outer : zeros_of(joint_.type(in)));
      backward.add_carry(in, body_.carry_cotangent_out[static_cast<size_t>(i)]);
    }
    for (int64_t i = 0; i < loop_.constants(); ++i) {
      const ValueId in = body_.constant_sum_in[static_cast<size_t>(i)];
      if (in == kNone) continue;
      carries.push_back(zeros_of(joint_.type(in)));
      backward.add_carry(in, body_.constant_sum_out[static_cast<size_t>(i)]);
    }
    for (int64_t k = 0; k < loop_.results(); ++k) {
      const ValueId in = body_.result_cotangent_in[static_cast<size_t>(k)];
      if (in == kNone) continue;
      stacked.push_back(result_cotangents_[static_cast<size_t>(k)]);
      backward.add_slice(in);
    }
    for (const ValueId slice : body_.slice_cotangent)
      if (slice != kNone) backward.add_result(slice);
    launch(backward, std::move(carries), std::move(stacked));
  }

  void launch(LoopBody& backward, std::vector<Tensor> carries, std::vector<Tensor> stacked) {
    const LoopBody::Built built = backward.build();
    // The forward loop saves; results it had keep their places.
    graph_.node(id_).bodies[0] = std::make_shared<const Graph>(built.forward_body);
    for (const ValueId saved : built.saved) {
      const ValueId result =
          graph_.add_result(id_, stacked_type(joint_.type(saved), loop_.axis(), loop_.count()));
      graph_.value(result).name = joint_.value(saved).name;
      stacked.emplace_back(&graph_, result);
    }
    for (const int64_t slice : built.slices) stacked.emplace_back(&graph_, loop_.stacked(slice));
    std::vector<Tensor> inputs = carries;
    inputs.insert(inputs.end(), stacked.begin(), stacked.end());
    for (const int64_t k : built.constants) inputs.emplace_back(&graph_, loop_.constant(k));
    const Attributes attributes =
        loop_attributes(loop_.axis(), loop_.count(), static_cast<int64_t>(carries.size()),
                        static_cast<int64_t>(stacked.size()),
                        static_cast<int64_t>(built.constants.size()), !loop_.reversed());
    const std::vector<Tensor> outputs =
        trace_node(*node_.op, inputs, attributes, node_.site,
                   {std::make_shared<const Graph>(built.backward_body)});
    hand_back(outputs);
  }

  void hand_back(const std::vector<Tensor>& outputs) {
    size_t next = 0;
    for (int64_t i = 0; i < loop_.carries(); ++i) {
      if (body_.carry_cotangent_in[static_cast<size_t>(i)] == kNone) continue;
      const Tensor& cotangent = outputs[next++];
      if (flag_of(active_, loop_.initial(i))) cotangents_.add(loop_.initial(i), cotangent);
    }
    for (int64_t i = 0; i < loop_.constants(); ++i)
      if (body_.constant_sum_in[static_cast<size_t>(i)] != kNone)
        cotangents_.add(loop_.constant(i), outputs[next++]);
    for (int64_t i = 0; i < loop_.slices(); ++i)
      if (body_.slice_cotangent[static_cast<size_t>(i)] != kNone)
        cotangents_.add(loop_.stacked(i), outputs[next++]);
  }

  Graph& graph_;
  NodeId id_;
  Node node_;  // As it was: the graph's nodes move while we trace.
  Loop loop_;
  const std::vector<bool>& active_;
  Cotangents& cotangents_;
  Graph joint_;  // The body, then its backward pass.
  NodeId forward_nodes_;
  std::vector<Tensor> result_cotangents_;
  std::vector<bool> body_active_;
  std::vector<bool> reached_;
  BodyBackward body_;
};

}  // namespace

void trace_repeat_backward(Graph& graph, NodeId id, const std::vector<bool>& active,
                           Cotangents& cotangents) {
  RepeatGradient(graph, id, active, cotangents).trace();
}

}  // namespace tessera
