// SPDX-License-Identifier: Apache-2.0
// The sums of cotangents (autodiff.h). In: the contributions to each value of a traced graph. Out:
// their sum in the layout of the value, reduced or still partial by the boundary rule
// (docs/design.md §2). Contributions that are partial over the same mesh axes are added first, the
// partial groups next, and the total is reduced at most once. Cost: linear in the contributions; an
// add for each but the first.
#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// Makes a pending sum over these mesh axes, without repetitions, in mesh order.
Partial pending_sum(const std::vector<std::string>& mesh_axes) {
  Partial partial;
  partial.mesh_axes = mesh_union(traced_mesh(), mesh_axes, {});
  if (!partial.mesh_axes.empty()) partial.kind = PartialKind::kSum;
  return partial;
}

Tensor with_partial(const Tensor& x, const Partial& partial) {
  Type type = x.type();
  type.partial = partial;
  return type == x.type() ? x : reshard(x, type);
}

struct Group {
  Partial partial;
  Tensor sum;
};

// Sums contributions that are partial over the same mesh axes, in order of arrival.
std::vector<Group> grouped(const std::vector<Tensor>& contributions) {
  std::vector<Group> groups;
  for (const Tensor& contribution : contributions) {
    const Partial& partial = contribution.type().partial;
    const auto group =
        std::ranges::find_if(groups, [&](const Group& g) { return g.partial == partial; });
    if (group == groups.end()) {
      groups.push_back({partial, contribution});
    } else {
      group->sum = add(group->sum, contribution);
    }
  }
  return groups;
}

// Sums contributions in order of arrival, whatever their layouts.
Tensor in_order(const std::vector<Tensor>& contributions, const Partial& partial) {
  Tensor total;
  for (const Tensor& contribution : contributions) {
    const Tensor term = with_partial(contribution, partial);
    total = total ? add(total, term) : term;
  }
  return total;
}

// Returns whether a sum is over axes of size 1 only, and so a view.
bool drops_unit_axes(const Graph& graph, const Node& node) {
  return node.op == &kReduceSumOp &&
         graph.type(node.inputs[0]).elements() == graph.type(node.outputs[0]).elements();
}

// Returns whether a constant is added to the first operand, whose cotangent is then the sum's.
bool adds_constant(const Graph& graph, const Node& node) {
  if (node.op != &kAddOp || !(graph.type(node.inputs[0]) == graph.type(node.outputs[0])))
    return false;
  const NodeId other = graph.value(node.inputs[1]).producer;
  return other != kNone && graph.node(other).op == &kConstantOp;
}

}  // namespace

Type cotangent_type(const Type& primal) {
  Type type = primal;
  type.partial = {};
  return type;
}

Type unreduced_type(const Type& target, const std::vector<std::string>& mesh_axes) {
  std::vector<std::string> pending;
  for (const std::string& mesh_axis : mesh_axes)
    if (!split_over(target, mesh_axis)) pending.push_back(mesh_axis);
  Type type = target;
  type.partial = pending_sum(pending);
  return type;
}

Tensor as_cotangent(const Tensor& contribution, const Type& primal) {
  Tensor result = contribution;
  const std::vector<std::string> order = primal.names();
  const std::vector<std::string> names = result.type().names();
  if (names != order) {
    CHECK(std::is_permutation(order.begin(), order.end(), names.begin(), names.end()),
          "a cotangent {} of a value {}", result.type().text(), primal.text());
    result = transpose(result, joined(order));
  }
  if (result.dtype() != primal.dtype) result = cast(result, primal.dtype, CastPartial::kThrough);
  std::vector<std::string> pending;
  for (const std::string& mesh_axis : result.type().partial.mesh_axes)
    if (!split_over(primal, mesh_axis) && !primal.partial.over(mesh_axis))
      pending.push_back(mesh_axis);
  Type type = cotangent_type(primal);
  type.partial = pending_sum(pending);
  return type == result.type() ? result : reshard(result, type);
}

Boundary::Boundary(const Graph& graph, std::vector<ValueId> reduced)
    : graph_(graph), reduced_(std::move(reduced)) {}

bool Boundary::keeps_partial(ValueId value) const {
  for (NodeId producer = graph_.value(value).producer; producer != kNone;
       producer = graph_.value(value).producer) {
    const Node& node = graph_.node(producer);
    if (node.op->op_class == OpClass::kReshard) return true;
    if (!node.op->linear_view && !drops_unit_axes(graph_, node) && !adds_constant(graph_, node))
      return false;
    value = node.inputs[0];
  }
  return std::ranges::find(reduced_, value) == reduced_.end();
}

void Cotangents::add(ValueId value, const Tensor& contribution) {
  contributions_[value].push_back(as_cotangent(contribution, graph_.type(value)));
}

Tensor Cotangents::sum(ValueId value) {
  const auto found = contributions_.find(value);
  if (found == contributions_.end()) return {};
  const std::vector<Group> groups = grouped(found->second);
  std::vector<std::string> mesh_axes;
  for (const Group& group : groups)
    mesh_axes.insert(mesh_axes.end(), group.partial.mesh_axes.begin(),
                     group.partial.mesh_axes.end());
  const Partial pending = pending_sum(mesh_axes);
  const bool keep = boundary_.keeps_partial(value);
  if (trace_state().is_mesh_invariant)
    return (found->second = {in_order(found->second, keep ? pending : Partial())}).front();

  Tensor partial, replicated;
  for (const Group& group : groups) {
    if (!group.partial) {
      replicated = group.sum;
    } else {
      const Tensor masked = with_partial(group.sum, pending);
      partial = partial ? tessera::add(partial, masked) : masked;
    }
  }
  if (partial && !keep) partial = with_partial(partial, {});
  if (partial && replicated && keep) replicated = with_partial(replicated, pending);
  Tensor total = partial ? partial : replicated;
  if (partial && replicated) total = tessera::add(partial, replicated);
  found->second = {total};
  return total;
}

}  // namespace tessera
