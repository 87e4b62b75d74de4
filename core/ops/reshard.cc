// SPDX-License-Identifier: Apache-2.0
#include "core/ops/reshard.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/cast.h"
#include "core/ops/elementwise_rules.h"
#include "core/ops/vjp.h"

namespace tessera {
namespace {

// Attribute "type": the result's. Same global array, so same dtype, axes, order and sizes.
void check_same_array(const InferContext& context, const Type& target) {
  const Type& x = context.inputs[0];
  if (x.dtype != target.dtype || x.names() != target.names()) {
    refuse(context, fmt::format("{} is {}, which cannot become {}: only splits and partials may "
                                "differ",
                                context.names[0], x.text(), target.text()));
  }
  for (size_t i = 0; i < x.axes.size(); ++i) {
    if (x.axes[i].size == target.axes[i].size) continue;
    refuse(context, fmt::format("{} is {} in {} and {} in the target", x.axes[i].name,
                                x.axes[i].size, context.names[0], target.axes[i].size));
  }
}

// A maximum may stay pending or become replicated; a sum may come from anything but a maximum.
void check_partials(const InferContext& context, const Type& target) {
  const Partial &from = context.inputs[0].partial, &to = target.partial;
  if (from.kind == PartialKind::kMax) {
    for (const std::string& mesh_axis : from.mesh_axes) {
      const bool stays = to.kind == PartialKind::kMax && to.over(mesh_axis);
      if (!stays && (split_over(target, mesh_axis) || to.over(mesh_axis))) {
        refuse(context, fmt::format("{} is a partial max over {}, which may only become "
                                    "replicated; the target is {}",
                                    context.names[0], mesh_axis, target.text()));
      }
    }
  }
  if (to.kind == PartialKind::kMax) {
    for (const std::string& mesh_axis : to.mesh_axes) {
      if (from.kind == PartialKind::kMax && from.over(mesh_axis)) continue;
      refuse(context, fmt::format("{} is not a partial max over {}; only reduce_max makes one",
                                  context.names[0], mesh_axis));
    }
  }
}

std::vector<Type> infer_reshard(const InferContext& context) {
  const Type& target = context.attributes.get<Type>("type");
  check_same_array(context, target);
  check_partials(context, target);
  return {target};
}

// Per mesh axis: split as x where x is; whole where x is partial; where x is replicated, a split
// cotangent is gathered, and a replicated or partial one stays as it is.
Tensors reshard_vjp(const VjpContext& c) {
  const Type& x = c.inputs[0].type();
  Type target = x;
  target.partial = {};
  for (const std::string& mesh_axis : c.cotangents[0].type().partial.mesh_axes) {
    if (split_over(x, mesh_axis) || x.partial.over(mesh_axis)) continue;
    target.partial.kind = PartialKind::kSum;
    target.partial.mesh_axes.push_back(mesh_axis);
  }
  return {reshard_gradient(c.cotangents[0], target, c.inputs[0], c.outputs[0])};
}

Tensors save_vjp(const VjpContext& c) { return {c.cotangents[0]}; }

Tensor reshard_to(const Operand& x, Type type) {
  if (x.tensor.type() == type) return x.tensor;
  return trace_op(kReshardOp, {x.tensor}, {{"type", std::move(type)}}, x.site);
}

}  // namespace

const OpDef kReshardOp{.name = "reshard",
                       .op_class = OpClass::kReshard,
                       .infer = infer_reshard,
                       .vjp = reshard_vjp,
                       .flops = no_flops};
const OpDef kSaveForBackwardOp{.name = "save_for_backward",
                               .op_class = OpClass::kView,
                               .infer = infer_linear,
                               .vjp = save_vjp,
                               .flops = no_flops,
                               .linear_view = true,
                               .identity = true};
static const OpRegistrar kRegisterReshard{&kReshardOp, &kSaveForBackwardOp};

Tensor reshard(Operand x, const Type& type) { return reshard_to(x, type); }

Tensor reshard(Operand x, std::string_view layout) {
  const ErrorPrefix where(x.site.text());
  Type type = parse_layout(layout);
  type.dtype = x.tensor.dtype();
  for (Axis& axis : type.axes) {
    if (axis.size == 0 && x.tensor.has(axis.name)) axis.size = x.tensor.size(axis.name);
  }
  type.partial.mesh_axes = mesh_union(traced_mesh(), type.partial.mesh_axes, {});
  return reshard_to(x, std::move(type));
}

Tensor place(Operand x, std::string_view role) {
  const ErrorPrefix where(x.site.text());
  return reshard_to(x,
                    apply_rules(traced_rules().activations, traced_mesh(), x.tensor.type(), role));
}

Tensor save_for_backward(Operand x, std::string_view name) {
  const Tensor saved =
      trace_op(kSaveForBackwardOp, {x.tensor}, {{"name", std::string(name)}}, x.site);
  saved.named(name);
  return saved;
}

}  // namespace tessera
