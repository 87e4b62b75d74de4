// SPDX-License-Identifier: Apache-2.0
#include "core/ops/cast.h"

#include <optional>
#include <string>

#include <fmt/format.h>

#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/elementwise_rules.h"
#include "core/ops/reshard.h"
#include "core/ops/vjp.h"

namespace tessera {
namespace {

// Attributes: "dtype", "through_partial" (0/1), and of some "reduce" (of cast_weight) or "excess"
// (1: a rounding that need not be, undone by a cast back).
Types infer_cast(const InferContext& context) {
  refuse_maximum(context);
  Type type = context.inputs[0];
  type.dtype = parse_dtype(context.attributes.get<std::string>("dtype"));
  const bool through = context.attributes.get<int64_t>("through_partial") != 0;
  if (type.partial && !(through && is_floating(type.dtype))) {
    refuse(context, fmt::format("{} is partial over {} and would be rounded before it is added up; "
                                "{}, or ask for CastPartial::kThrough",
                                context.names[0], mesh_text(type.partial.mesh_axes),
                                place_hint(context.names[0])));
  }
  return {type};
}

Attributes cast_attributes(DType dtype, CastPartial partial) {
  return {{"dtype", std::string(dtype_name(dtype))},
          {"through_partial", int64_t{partial == CastPartial::kThrough}}};
}

const Node* producer(const Tensor& x) {
  const NodeId id = x.graph()->value(x.id()).producer;
  return id == kNone ? nullptr : &x.graph()->node(id);
}

std::optional<DType> reduce_dtype(const Node& node) {
  if (node.op != &kCastOp || !node.attributes.has("reduce")) return std::nullopt;
  return parse_dtype(node.attributes.get<std::string>("reduce"));
}

// To a dtype, through pending sums; a rounding in excess is taken back instead.
Tensor widened_back(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (const Node* node = producer(x); node != nullptr && node->attributes.has("excess")) {
    const Tensor exact(x.graph(), node->inputs[0]);
    if (exact.dtype() == dtype) return exact;
  }
  return cast(x, dtype, CastPartial::kThrough);
}

Tensor rounded_in_excess(const Tensor& x, DType dtype) {
  Attributes attributes = cast_attributes(dtype, CastPartial::kThrough);
  attributes.set("excess", int64_t{1});
  return trace_op(kCastOp, {x}, std::move(attributes), {});
}

// What is still pending is summed in the reduce dtype if that is not the weight's own, in which
// whoever asked for the gradient will sum it.
Tensors cast_vjp(const VjpContext& c) {
  const DType own = c.inputs[0].dtype();
  if (!is_floating(own)) return {Tensor()};
  Tensor cotangent = c.cotangents[0];
  const DType reduce = reduce_dtype(c.node).value_or(own);
  if (reduce != own && cotangent.type().partial) {
    cotangent = widened_back(cotangent, reduce);
    Type whole = cotangent.type();
    whole.partial = {};
    cotangent = reshard(cotangent, whole);
  }
  return {widened_back(cotangent, own)};
}

}  // namespace

const OpDef kCastOp = [] {
  OpDef op = linear_view(elementwise("cast", infer_cast, cast_vjp));
  op.identity = true;
  return op;
}();
static const OpRegistrar kRegisterCast{kCastOp};

Tensor cast(Operand x, DType dtype, CastPartial partial) {
  return trace_op(kCastOp, {x.tensor}, cast_attributes(dtype, partial), x.site);
}

Tensor cast_weight(Operand x, DType dtype, DType reduce) {
  if (x.tensor.dtype() == dtype && reduce == dtype) return x.tensor;
  Attributes attributes = cast_attributes(dtype, CastPartial::kRefuse);
  attributes.set("reduce", std::string(dtype_name(reduce)));
  return trace_op(kCastOp, {x.tensor}, std::move(attributes), x.site);
}

Tensor reshard_gradient(const Tensor& cotangent, const Type& target, const Tensor& x,
                        const Tensor& resharded) {
  const Node* const made_by = producer(x);
  const DType dtype = cotangent.dtype();
  const DType reduce = made_by == nullptr ? dtype : reduce_dtype(*made_by).value_or(dtype);
  const bool reduces = cotangent.type().partial && cotangent.type().partial != target.partial;
  const auto named = [&](const Tensor& gradient) {
    const std::string& name = resharded.graph()->value(resharded.id()).name;
    if (!name.empty() && gradient.id() != cotangent.id()) gradient.named("gradient of " + name);
    return gradient;
  };
  if (reduce == dtype || !reduces) return named(reshard(cotangent, target));
  Type wide = target;
  wide.dtype = reduce;
  const Tensor summed = named(reshard(cast(cotangent, reduce, CastPartial::kThrough), wide));
  return rounded_in_excess(summed, dtype);
}

}  // namespace tessera
