// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm are one family: LayerNorm also subtracts the mean and may add a bias.
// Operands x, [scale], [bias]; results y, 1/deviation, [mean]; the gradient reads the latter two.
#include "core/ops/norm.h"

#include <vector>

#include "core/base/error.h"
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

constexpr AttributeName<bool> kCentered{"centered"}, kHasScale{"scale"}, kHasBias{"bias"};

// The operands of the gradient: x, [scale], 1/deviation, [mean], and y's cotangent.
struct GradOperands {
  GradOperands(const NormAttributes& norm, std::span<const Tensor> inputs)
      : x(inputs[0]),
        scale(norm.has_scale ? inputs[1] : Tensor()),
        rstd(inputs[norm.has_scale ? 2 : 1]),
        mean(norm.centered ? inputs[norm.has_scale ? 3 : 2] : Tensor()),
        cotangent(inputs.back()) {}
  Tensor x, scale, rstd, mean, cotangent;
};

// Scale and bias have the normalised axis alone, and one dtype.
void check_weights(const InferContext& context, size_t begin, size_t end, const Axis& axis) {
  for (size_t i = begin; i < end; ++i) {
    check_same_axes(context, i, {axis});
    check_dtypes_agree(context, begin, i);
  }
}

// Sums over every axis except `axis`.
Tensor sum_to_axis(const Tensor& x, std::string_view axis) {
  std::vector<std::string> names = x.type().names();
  std::erase(names, axis);
  return names.empty() ? x : reduce_sum(x, joined(names));
}

Types infer_norm_grad(const InferContext& context) {
  const NormAttributes norm(context.attributes);
  refuse_partial(context);
  check_floating(context);
  const Type& x = context.inputs[0];
  check_weights(context, 1, norm.has_scale ? 2 : 1, unsplit_last_axis_of(context, 0, norm.axis));
  check_same_axes(context, context.inputs.size() - 1, x.axes);
  Types types = {x};
  if (norm.has_scale) {
    types.push_back(sum_to_axis_type(context, x, norm.axis, context.inputs[1].dtype));
    if (norm.has_bias) types.push_back(types.back());
  }
  return types;
}

Tensors decompose_norm_grad(const Node& node, std::span<const Tensor> inputs) {
  const NormAttributes norm(node.attributes);
  const GradOperands operands(norm, inputs);
  Tensor normalised = widened(operands.x);
  if (norm.centered) normalised = normalised - operands.mean;
  normalised = normalised * operands.rstd;
  const Tensor cotangent = widened(operands.cotangent);
  const Tensor scaled = norm.has_scale ? cotangent * widened(operands.scale) : cotangent;

  Tensor dx = scaled - normalised * reduce_mean(scaled * normalised, norm.axis);
  if (norm.centered) dx = dx - reduce_mean(scaled, norm.axis);
  Tensors results = {as_dtype(dx * operands.rstd, operands.x.dtype())};
  if (norm.has_scale) {
    results.push_back(
        as_dtype(sum_to_axis(cotangent * normalised, norm.axis), operands.scale.dtype()));
    if (norm.has_bias)
      results.push_back(as_dtype(sum_to_axis(cotangent, norm.axis), operands.scale.dtype()));
  }
  return results;
}

Types infer_norm(const InferContext& context) {
  const NormAttributes norm(context.attributes);
  refuse_partial(context);
  check_floating(context);
  const Type& x = context.inputs[0];
  check_weights(context, 1, context.inputs.size(), unsplit_last_axis_of(context, 0, norm.axis));
  const Type statistic = without_axis(x, norm.axis, wide_dtype(x.dtype));
  if (norm.centered) return {x, statistic, statistic};
  return {x, statistic};
}

// Normalises by primitive ops; the normalised axis may be split.
Tensors normalised(const NormAttributes& norm, std::span<const Tensor> inputs) {
  Tensor x = widened(inputs[0]);
  Tensor mean;
  if (norm.centered) {
    mean = reduced(reduce_mean(x, norm.axis));
    x = x - mean;
  }
  const Tensor rstd = rsqrt(reduced(reduce_mean(square(x), norm.axis)) + norm.epsilon);
  Tensor y = x * rstd;
  if (norm.has_scale) y = y * widened(inputs[1]);
  if (norm.has_bias) y = y + widened(inputs[2]);
  Tensors results = {as_dtype(y, inputs[0].dtype()), rstd};
  if (norm.centered) results.push_back(mean);
  return results;
}

Tensors decompose_norm(const Node& node, std::span<const Tensor> inputs) {
  return normalised(NormAttributes(node.attributes), inputs);
}

Tensors vjp_norm(const VjpContext& context) {
  const NormAttributes norm(context.node.attributes);
  Tensors operands = {context.inputs[0]};
  if (norm.has_scale) operands.push_back(context.inputs[1]);
  operands.insert(operands.end(), context.outputs.begin() + 1, context.outputs.end());
  operands.push_back(context.cotangents[0]);
  return trace_node(norm.centered ? kLayerNormGradOp : kRmsNormGradOp, operands,
                    context.node.attributes, context.node.site);
}

// Scale and bias must be split like the axis they multiply.
void check_split_alike(const OpDef& op, std::span<const Tensor> operands, std::string_view axis,
                       const SourceSite& site) {
  const ErrorPrefix where(site.text());
  const auto name = [](const Tensor& tensor) { return tensor.graph()->describe(tensor.id()); };
  const Axis& split = operands[0].type().axis(axis);
  for (const Tensor& weight : operands.subspan(1)) {
    const Type& type = weight.type();
    if (type.has(axis) && type.axis(axis).split == split.split) continue;
    fail("{}: {} has {}, {} is {}; reshard it to {} as well", op.name, name(operands[0]),
         split.text(), name(weight), type.text(), split.text());
  }
}

Tensor trace_norm(const OpDef& op, const Operand& x, const Tensor& scale, const Tensor& bias,
                  std::string_view axis, double epsilon) {
  if (bias && !scale) fail("{}: bias is given, scale is not; a bias needs a scale", op.name);
  Tensors operands = {axis_last(x, axis)};
  if (scale) operands.push_back(scale);
  if (bias) operands.push_back(bias);
  const Attributes attributes = {{key::kAxis, axis},
                                 {key::kEpsilon, epsilon},
                                 {kCentered, &op == &kLayerNormOp},
                                 {kHasScale, scale.valid()},
                                 {kHasBias, bias.valid()}};
  if (x.tensor.has(axis) && !x.tensor.type().axis(axis).split.empty()) {
    const SiteScope site(x.site);
    check_split_alike(op, operands, axis, x.site);
    if (trace_state().is_mesh_invariant) {
      for (Tensor& operand : operands)
        operand = reshard(operand, with_whole_axis(operand.type(), axis, traced_mesh()));
      const Tensor y = trace_op(op, operands, attributes, x.site);
      return in_order_of({reshard(y, axis_last(x, axis).type()), x.site}, x.tensor.type());
    }
    // Only the statistics cross devices.
    if (traced_mesh().size_along(x.tensor.type().axis(axis).split) > 1)
      return in_order_of(normalised(NormAttributes(attributes), operands).front(), x.tensor.type());
    // The axis is whole on each device, so that nothing is moved.
    for (Tensor& operand : operands) operand = whole_along(operand, axis);
    const Tensor y = trace_op(op, operands, attributes, x.site);
    return reshard(in_order_of({y, x.site}, x.tensor.type()), x.tensor.type());
  }
  const Tensor y = trace_op(op, operands, attributes, x.site);
  return in_order_of({y, x.site}, x.tensor.type());
}

Types infer_softmax(const InferContext& context) {
  refuse_partial(context);
  check_floating(context);
  check_same_dtype(context);
  unsplit_last_axis_of(context, 0, context.attributes.get(key::kAxis));
  for (size_t i = 1; i < context.inputs.size(); ++i)
    check_same_axes(context, i, context.inputs[0].axes);
  return {context.inputs[0]};
}

// Operands: the softmax and its cotangent.
Tensors decompose_softmax_grad(const Node& node, std::span<const Tensor> inputs) {
  const Tensor y = widened(inputs[0]);
  const Tensor product = y * widened(inputs[1]);
  const Tensor dx = product - y * reduce_sum(product, node.attributes.get(key::kAxis));
  return {as_dtype(dx, inputs[0].dtype())};
}

Tensors decompose_softmax(const Node& node, std::span<const Tensor> inputs) {
  const Tensor x = widened(inputs[0]);
  const Tensor exponential = exp(x - reduce_max(x, node.attributes.get(key::kAxis)));
  return {as_dtype(exponential / reduce_sum(exponential, node.attributes.get(key::kAxis)),
                   inputs[0].dtype())};
}

Tensors vjp_softmax(const VjpContext& context) {
  return trace_node(kSoftmaxGradOp, {context.outputs[0], context.cotangents[0]},
                    context.node.attributes, context.node.site);
}

constexpr OpDef norm_op(std::string_view name) {
  return {.name = name,
          .op_class = OpClass::kReduction,
          .infer = infer_norm,
          .vjp = vjp_norm,
          .decomposition = decompose_norm,
          .flops = flops_per_element<6>};
}

constexpr OpDef norm_grad(std::string_view name) {
  return {.name = name,
          .op_class = OpClass::kReduction,
          .infer = infer_norm_grad,
          .decomposition = decompose_norm_grad,
          .flops = flops_per_element<12>};
}

}  // namespace

NormAttributes::NormAttributes(const Attributes& attributes)
    : axis(attributes.get(key::kAxis)),
      epsilon(attributes.get(key::kEpsilon)),
      centered(attributes.get(kCentered)),
      has_scale(attributes.get(kHasScale)),
      has_bias(attributes.get(kHasBias)) {}

const Op kRmsNormGradOp{norm_grad("rms_norm_grad")};
const Op kLayerNormGradOp{norm_grad("layer_norm_grad")};
const Op kRmsNormOp{norm_op("rms_norm")};
const Op kLayerNormOp{norm_op("layer_norm")};
const Op kFusedNormOp{
    {.name = "fused_norm", .op_class = OpClass::kReduction, .infer = infer_fused}};

Tensor reduce_mean(Operand x, std::string_view axes) {
  const Tensor sum = reduce_sum(x, axes);
  double count = 1.0;
  for (const std::string& name : parse_names(axes))
    count *= static_cast<double>(x.tensor.size(name));
  return scale({sum, x.site}, 1.0 / count);
}

Tensor rms_norm(Operand x, const Tensor& scale, std::string_view axis, double epsilon) {
  return trace_norm(kRmsNormOp, x, scale, {}, axis, epsilon);
}

Tensor layer_norm(Operand x, const Tensor& scale, const Tensor& bias, std::string_view axis,
                  double epsilon) {
  return trace_norm(kLayerNormOp, x, scale, bias, axis, epsilon);
}

const Op kSoftmaxGradOp{{.name = "softmax_grad",
                         .op_class = OpClass::kReduction,
                         .infer = infer_softmax,
                         .decomposition = decompose_softmax_grad,
                         .flops = flops_per_element<5>}};
const Op kSoftmaxOp{{.name = "softmax",
                     .op_class = OpClass::kReduction,
                     .infer = infer_softmax,
                     .vjp = vjp_softmax,
                     .decomposition = decompose_softmax,
                     .flops = flops_per_element<5>}};

Tensor softmax(Operand x, std::string_view axis) {
  const Tensor y = trace_op(kSoftmaxOp, {axis_last(x, axis)}, {{key::kAxis, axis}}, x.site);
  return in_order_of({y, x.site}, x.tensor.type());
}

Tensor logsumexp(Operand x, std::string_view axis) {
  const SiteScope site(x.site);
  const Tensor wide = widened(x.tensor);
  const Tensor highest = reduced(reduce_max(stop_gradient(wide), axis));
  // Without an infinite maximum, which would be subtracted from itself.
  const Tensor shift = where(is_finite(highest), highest, constant(0.0, wide.dtype()));
  const Tensor sum = reduced(reduce_sum(exp(wide - shift), axis));
  return as_dtype(log(sum) + shift, x.tensor.dtype());
}

}  // namespace tessera
