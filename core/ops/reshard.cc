// SPDX-License-Identifier: Apache-2.0
#include "core/ops/reshard.h"

#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/op_helpers.h"
#include "core/ops/send.h"

namespace tessera {
namespace {

// Whether a cast rounds a partial sum, and whether a cast back to the previous dtype removes it.
constexpr AttributeName<bool> kThroughPartial{"through_partial"}, kExcess{"excess"};

Types infer_cast(const InferContext& context) {
  refuse_maximum(context);
  Type type = context.inputs[0];
  type.dtype = context.attributes.get(key::kDtype);
  const bool through = context.attributes.get(kThroughPartial);
  if (type.partial && !(through && is_floating(type.dtype)))
    refuse(context,
           "{} is partial over {} and would be rounded before it is summed; "
           "{}, or ask for CastPartial::kThrough",
           context.names[0], mesh_text(type.partial.mesh_axes), place_hint(context.names[0]));
  return {type};
}

Attributes cast_attributes(DType dtype, CastPartial partial) {
  return {{key::kDtype, dtype}, {kThroughPartial, partial == CastPartial::kThrough}};
}

const Node* producer(const Tensor& x) {
  const NodeId id = x.graph()->value(x.id()).producer;
  return id == kNone ? nullptr : &x.graph()->node(id);
}

// None in a mesh-invariant graph: a sum over devices is rounded to this dtype, one of one device is
// not.
std::optional<DType> reduce_dtype(const Node& node) {
  if (trace_state().is_mesh_invariant) return std::nullopt;
  if (node.op != &kCastOp || !node.attributes.has(key::kReduce)) return std::nullopt;
  return node.attributes.get(key::kReduce);
}

// Sums over all mesh axes but the pending ones.
Tensor reduced_unless_pending(const Tensor& x) {
  Type type = x.type();
  std::erase_if(type.partial.mesh_axes, [](const std::string& mesh_axis) {
    return !contains(trace_state().pending_mesh_axes, mesh_axis);
  });
  if (type.partial.mesh_axes.empty()) type.partial = {};
  return type == x.type() ? x : reshard(x, type);
}

// Sums a partial sum here, in the reduce dtype, unless that is the weight's dtype: then the caller
// of autodiff sums it.
Tensors cast_vjp(const VjpContext& c) {
  const DType own = c.inputs[0].dtype();
  if (!is_floating(own)) return {Tensor()};
  Tensor cotangent = c.cotangents[0];
  const DType reduce = reduce_dtype(c.node).value_or(own);
  if (reduce != own && cotangent.type().partial)
    cotangent = reduced_unless_pending(widened_gradient(cotangent, reduce));
  return {widened_gradient(cotangent, own)};
}

// The array stays the same: dtype, axes, order and sizes.
void check_same_array(const InferContext& context, const Type& target) {
  const Type& x = context.inputs[0];
  if (x.dtype != target.dtype || x.names() != target.names())
    refuse(context, "{} is {}, which cannot become {}: only splits and partials may differ",
           context.names[0], x.text(), target.text());
  for (size_t i = 0; i < x.axes.size(); ++i) {
    if (x.axes[i].size == target.axes[i].size) continue;
    refuse(context, "{} is {} in {} and {} in the target", x.axes[i].name, x.axes[i].size,
           context.names[0], target.axes[i].size);
  }
}

// A partial maximum may stay partial or become replicated; a partial sum may come from anything
// else.
void check_partials(const InferContext& context, const Type& target) {
  const Partial &from = context.inputs[0].partial, &to = target.partial;
  if (from.kind == PartialKind::kMax) {
    for (const std::string& mesh_axis : from.mesh_axes) {
      const bool stays = to.kind == PartialKind::kMax && to.over(mesh_axis);
      if (!stays && (split_over(target, mesh_axis) || to.over(mesh_axis)))
        refuse(context,
               "{} is a partial max over {}, which may only become "
               "replicated; the target is {}",
               context.names[0], mesh_axis, target.text());
    }
  }
  if (to.kind == PartialKind::kMax) {
    for (const std::string& mesh_axis : to.mesh_axes) {
      if (from.kind == PartialKind::kMax && from.over(mesh_axis)) continue;
      refuse(context, "{} is not a partial max over {}; only reduce_max makes one",
             context.names[0], mesh_axis);
    }
  }
}

Types infer_reshard(const InferContext& context) {
  const Type& target = context.attributes.get(key::kType);
  check_same_array(context, target);
  check_partials(context, target);
  return {target};
}

// Reshards the cotangent of a reshard of `x` to `resharded` to `target`. If x is a weight's cast,
// the sum is in its reduce dtype; the rounding after it is marked as excess, which a cast back to
// the reduce dtype removes.
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
  const Tensor summed = named(reshard(widened_gradient(cotangent, reduce), wide));
  return gradient_cast(summed, dtype);
}

// Per mesh axis: split like x where x is split; replicated where x is partial; where x is
// replicated, a split cotangent is gathered, and a replicated or partial one stays as it is.
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

using Devices = std::vector<int64_t>;

int64_t group_size(const Attributes& attributes) {
  return static_cast<int64_t>(attributes.get(key::kGroup).size());
}

Axis& axis_in(Type& type, const InferContext& context, AttributeName<std::string> name) {
  const std::string& axis = context.attributes.get(name);
  const int64_t position = type.find(axis);
  if (position < 0) refuse(context, "{} is {}, without {}", context.names[0], type.text(), axis);
  return type.axes[static_cast<size_t>(position)];
}

// Infers the operand with the axis of attribute `split` divided over the group, and that of
// `concat` multiplied by it; {}: none.
Types resized(const InferContext& context, AttributeName<std::string> split,
              AttributeName<std::string> concat) {
  const int64_t devices = group_size(context.attributes);
  Type type = context.inputs[0];
  if (!split.text.empty()) {
    Axis& axis = axis_in(type, context, split);
    if (axis.size % devices != 0)
      refuse(context, "{}={} of {} cannot be split over {} devices", axis.name, axis.size,
             context.names[0], devices);
    axis.size /= devices;
  }
  if (!concat.text.empty()) axis_in(type, context, concat).size *= devices;
  return {type};
}

Types infer_all_gather(const InferContext& context) { return resized(context, {}, key::kAxis); }
Types infer_reduce_scatter(const InferContext& context) { return resized(context, key::kAxis, {}); }
Types infer_all_to_all(const InferContext& context) {
  return resized(context, key::kSplitAxis, key::kConcatAxis);
}

constexpr OpDef collective(std::string_view name, decltype(OpDef::infer) infer) {
  return {.name = name,
          .op_class = OpClass::kCollective,
          .infer = infer,
          .flops = no_flops,
          .linear = true};
}

}  // namespace

const Op kCastOp{[] {
  OpDef op = linear_view(elementwise("cast", infer_cast, cast_vjp));
  op.identity = op.conversion = true;
  return op;
}()};

Tensor cast(Operand x, DType dtype, CastPartial partial) {
  return trace_unary(kCastOp, x, cast_attributes(dtype, partial));
}

Tensor as_dtype(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

DType wide_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

Tensor widened(const Tensor& x) { return as_dtype(x, wide_dtype(x.dtype())); }

Tensor gradient_cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Attributes attributes = cast_attributes(dtype, CastPartial::kThrough);
  attributes.set(kExcess, true);
  return trace_op(kCastOp, {x}, std::move(attributes), {});
}

Tensor widened_gradient(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (const Node* node = producer(x); node != nullptr && node->attributes.has(kExcess)) {
    const Tensor exact(x.graph(), node->inputs[0]);
    if (exact.dtype() == dtype) return exact;
  }
  return cast(x, dtype, CastPartial::kThrough);
}

Tensor cast_weight(Operand x, DType dtype, DType reduce) {
  if (x.tensor.dtype() == dtype && reduce == dtype) return x.tensor;
  Attributes attributes = cast_attributes(dtype, CastPartial::kRefuse);
  attributes.set(key::kReduce, reduce);
  return trace_unary(kCastOp, x, std::move(attributes));
}

const Op kReshardOp{{.name = "reshard",
                     .op_class = OpClass::kReshard,
                     .infer = infer_reshard,
                     .vjp = reshard_vjp,
                     .flops = no_flops,
                     .conversion = true}};
const Op kSaveForBackwardOp{{.name = "save_for_backward",
                             .op_class = OpClass::kView,
                             .infer = infer_linear,
                             .vjp = save_vjp,
                             .flops = no_flops,
                             .linear_view = true,
                             .identity = true}};

Tensor reshard(Operand x, const Type& type) {
  // A mesh-invariant graph has a node also where the layout stays: it is the same for every mesh,
  // and so is the order in which autodiff adds.
  if (x.tensor.type() == type && !trace_state().is_mesh_invariant) return x.tensor;
  return trace_unary(kReshardOp, x, {{key::kType, type}});
}

Tensor zeros(const Type& type) {
  const Tensor zero = constant(0.0, type.dtype, type.axes);
  return type.partial ? reshard(zero, type) : zero;
}

Tensor reduced(Operand x) {
  Type type = x.tensor.type();
  type.partial = {};
  return reshard(x, type);
}

Tensor replicated(Operand x) {
  std::vector<Axis> axes = x.tensor.type().axes;
  for (Axis& axis : axes) axis.split.clear();
  return reshard(x, make_type(x.tensor.dtype(), std::move(axes)));
}

Tensor whole_along(Operand x, std::string_view axis) {
  Type type = x.tensor.type();
  const int64_t position = type.find(axis);
  CHECK(position >= 0, "{} has no axis {}", type.text(), axis);
  type.axes[static_cast<size_t>(position)].split.clear();
  return reshard(x, type);
}

Tensor reshard(Operand x, std::string_view layout) {
  const ErrorPrefix where(x.site.text());
  Type type = parse_layout(layout);
  type.dtype = x.tensor.dtype();
  for (Axis& axis : type.axes)
    if (axis.size == 0 && x.tensor.has(axis.name)) axis.size = x.tensor.size(axis.name);
  type.partial.mesh_axes = mesh_union(traced_mesh(), type.partial.mesh_axes, {});
  return reshard(x, type);
}

Tensor place(Operand x, std::string_view role) {
  const ErrorPrefix where(x.site.text());
  return reshard(x, apply_rules(traced_rules().activations, traced_mesh(), x.tensor.type(), role));
}

Tensor save_for_backward(Operand x, std::string_view name) {
  const Tensor saved = trace_unary(kSaveForBackwardOp, x, {{key::kName, name}});
  saved.named(name);
  return saved;
}

const Op kAllGatherOp{collective("all_gather", infer_all_gather)};
const Op kReduceScatterOp{collective("reduce_scatter", infer_reduce_scatter)};
const Op kAllReduceOp{collective("all_reduce", infer_same)};
const Op kAllToAllOp{collective("all_to_all", infer_all_to_all)};
const Op kPermuteOp{collective("permute", infer_same)};
const Op kMaskToOwnerOp{{.name = "mask_to_owner",
                         .op_class = OpClass::kDataMovement,
                         .infer = infer_same,
                         .flops = no_flops}};

bool is_collective(const Node& node) { return node.op->op_class == OpClass::kCollective; }

int64_t collective_bytes(const Graph& graph, const Node& node) {
  if (node.op == &kReceiveOp) return 0;
  if (node.op == &kSendOp) return graph.type(node.inputs[0]).bytes();
  const int64_t in = graph.type(node.inputs[0]).bytes();
  const int64_t out = graph.type(node.outputs[0]).bytes();
  if (node.op == &kPermuteOp) {
    const int64_t self =
        node.attributes.get(key::kGroup)[static_cast<size_t>(node.attributes.get(key::kIndex))];
    return node.attributes.get(key::kTo) == self ? 0 : in;
  }
  const int64_t devices = group_size(node.attributes);
  if (node.op == &kAllGatherOp) return out / devices * (devices - 1);
  // Parts of an uneven division differ by one element; the total is the same.
  const int64_t times = node.op == &kAllReduceOp ? 2 : 1;
  return times * in * (devices - 1) / devices;
}

int64_t origin_along(const Attributes& attributes, int64_t axis) {
  if (!attributes.has(key::kOrigin)) return 0;
  return attributes.get(key::kOrigin)[static_cast<size_t>(axis)];
}

}  // namespace tessera
