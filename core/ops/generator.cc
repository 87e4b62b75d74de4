// SPDX-License-Identifier: Apache-2.0
#include "core/ops/generator.h"

#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/op_helpers.h"

namespace tessera {
namespace {

Types infer_generator(const InferContext& context) { return {context.attributes.get(key::kType)}; }

Types infer_one_hot(const InferContext& context) {
  refuse_partial(context, 0);
  check_dtype(context, 0, DType::kI32);
  Type type = context.inputs[0];
  type.dtype = context.attributes.get(key::kDtype);
  type.axes.push_back(new_axis(context.attributes));
  refuse_axis(context, 0, type.axes.back().name);
  check_mesh_axes_once(context, type);
  return {type};
}

// A generator without operands, whose type is an attribute.
OpDef generator(std::string_view name, ShardAnchor anchor = ShardAnchor::kResult) {
  return {.name = name,
          .op_class = OpClass::kGenerator,
          .infer = infer_generator,
          .flops = no_flops,
          .foldable = true,
          .anchor = anchor};
}

}  // namespace

const Op kConstantOp{generator("constant", ShardAnchor::kNone)};
const Op kIotaOp{generator("iota")};
const Op kCausalMaskOp{generator("causal_mask")};
const Op kOneHotOp{{.name = "one_hot",
                    .op_class = OpClass::kGenerator,
                    .infer = infer_one_hot,
                    .flops = no_flops,
                    .foldable = true,
                    .anchor = ShardAnchor::kResult,
                    .axis_size = {key::kAxis, key::kSize}}};

Tensor constant(double value, DType dtype, std::vector<Axis> axes, SourceSite site) {
  return trace_op(kConstantOp, {},
                  {{key::kValue, value}, {key::kType, make_type(dtype, std::move(axes))}}, site);
}

Tensor iota(Axis axis, SourceSite site) {
  return trace_op(kIotaOp, {}, {{key::kType, make_type(DType::kI32, {std::move(axis)})}}, site);
}

Tensor causal_mask(Axis query, Axis key, SourceSite site) {
  const Type type = make_type(DType::kBool, {std::move(query), std::move(key)});
  return trace_op(kCausalMaskOp, {}, {{key::kType, type}}, site);
}

Tensor one_hot(Operand ids, Axis axis, DType dtype) {
  Attributes attributes = axis_attributes(axis);
  attributes.set(key::kDtype, dtype);
  return trace_unary(kOneHotOp, ids, std::move(attributes));
}

}  // namespace tessera
