// SPDX-License-Identifier: Apache-2.0
#include "core/ops/reduce.h"

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"

namespace tessera {
namespace {

constexpr AttributeName<Type> kNewAxes{"axes"};  // A type that has the axes that broadcast adds.

using Names = std::vector<std::string>;

// Returns x without the axes of attribute kAxes; adds the mesh axes that split them to `split`.
Type without_reduced_axes(const InferContext& context, Names& split) {
  Type type = make_type(context.inputs[0].dtype, {});
  const Names& reduced = context.attributes.get(key::kAxes);
  for (const std::string& name : reduced) axis_of(context, 0, name);
  for (const Axis& axis : context.inputs[0].axes) {
    if (contains(reduced, axis.name)) {
      split = mesh_union(context.mesh, split, axis.split);
    } else {
      type.axes.push_back(axis);
    }
  }
  return type;
}

Types infer_sum(const InferContext& context) {
  refuse_maximum(context);
  check_numeric(context);
  Names split = context.inputs[0].partial.mesh_axes;
  Type type = without_reduced_axes(context, split);
  if (!split.empty()) type.partial = {PartialKind::kSum, split};
  return {type};
}

Types infer_max(const InferContext& context) {
  refuse_partial(context, 0);
  check_numeric(context);
  Names split;
  Type type = without_reduced_axes(context, split);
  if (!split.empty()) type.partial = {PartialKind::kMax, split};
  return {type};
}

Types infer_broadcast(const InferContext& context) {
  refuse_maximum(context);
  const Type& x = context.inputs[0];
  Type all = x;
  for (const Axis& axis : context.attributes.get(kNewAxes).axes) {
    refuse_axis(context, 0, axis.name);
    for (const std::string& mesh_axis : axis.split) {
      if (!x.partial.over(mesh_axis)) continue;
      refuse(context, "{} is partial over {}, which cannot split the new axis {}; {}",
             context.names[0], mesh_axis, axis.name, place_hint(context.names[0]));
    }
    all.axes.push_back(axis);
  }
  check_mesh_axes_once(context, all);
  Type result{x.dtype, {}, x.partial};
  for (const std::string& name : context.attributes.get(key::kOrder)) {
    if (!all.has(name))
      refuse(context, "order has {}, the result does not{}", name, did_you_mean(name, all.names()));
    result.axes.push_back(all.axis(name));
  }
  if (result.axes.size() != all.axes.size())
    refuse(context, "order [{}] must name each axis of [{}]", joined(result.names()),
           joined(all.names()));
  return {result};
}

Tensors sum_vjp(const VjpContext& c) {
  const Tensor& x = c.inputs[0];
  std::vector<Axis> summed;
  for (const Axis& axis : x.type().axes)
    if (!c.outputs[0].has(axis.name)) summed.push_back(axis);
  return {broadcast(c.cotangents[0], summed, joined(x.type().names()))};
}

Tensors broadcast_vjp(const VjpContext& c) { return {match(c.cotangents[0], c.inputs[0])}; }

Tensor reduce(const OpDef& op, const Operand& x, const Names& axes) {
  return trace_unary(op, x, {{key::kAxes, axes}});
}

}  // namespace

const Op kReduceSumOp{{.name = "reduce_sum",
                       .op_class = OpClass::kReduction,
                       .infer = infer_sum,
                       .vjp = sum_vjp,
                       .flops = flops_per_element<1>}};
const Op kReduceMaxOp{{.name = "reduce_max",
                       .op_class = OpClass::kReduction,
                       .infer = infer_max,
                       .flops = flops_per_element<1>}};
const Op kBroadcastOp{{.name = "broadcast",
                       .op_class = OpClass::kDataMovement,
                       .infer = infer_broadcast,
                       .vjp = broadcast_vjp,
                       .flops = no_flops,
                       .fusible = true}};

Tensor reduce_sum(Operand x, std::string_view axes) {
  return reduce(kReduceSumOp, x, names_at(x, axes));
}

Tensor reduce_sum(Operand x) { return reduce(kReduceSumOp, x, x.tensor.type().names()); }

Tensor reduce_max(Operand x, std::string_view axes) {
  return reduce(kReduceMaxOp, x, names_at(x, axes));
}

Tensor broadcast(Operand x, std::vector<Axis> new_axes, std::string_view order) {
  Names names;
  for (const Axis& axis : new_axes) names.push_back(axis.name);
  const Names old = x.tensor.type().names();
  names.insert(names.end(), old.begin(), old.end());
  if (!order.empty()) names = names_at(x, order);
  return trace_op(
      kBroadcastOp, {x.tensor},
      {{kNewAxes, make_type(x.tensor.dtype(), std::move(new_axes))}, {key::kOrder, names}}, x.site);
}

Tensor match(const Tensor& cotangent, const Tensor& primal) {
  const Names extra = names_beside(cotangent.type(), primal.type());
  return in_order_of(extra.empty() ? cotangent : reduce_sum(cotangent, joined(extra)),
                     primal.type());
}

}  // namespace tessera
