// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm are one family: LayerNorm also takes the mean off and may add a bias.
// Operands x, [scale], [bias]; results y, 1/deviation, [mean], the latter two kept for the
// gradient.
#include "core/ops/norm.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/composite.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

struct NormAttributes {
  explicit NormAttributes(const Attributes& attributes)
      : axis(attributes.get<std::string>("axis")),
        epsilon(attributes.get<double>("epsilon")),
        centred(attributes.get<int64_t>("centred") != 0),
        has_scale(attributes.get<int64_t>("scale") != 0),
        has_bias(attributes.get<int64_t>("bias") != 0) {}

  const std::string& axis;
  double epsilon;
  bool centred, has_scale, has_bias;
};

// The operands of the gradient: x, [scale], 1/deviation, [mean], and y's cotangent.
struct GradOperands {
  GradOperands(const NormAttributes& norm, std::span<const Tensor> inputs)
      : x(inputs[0]),
        scale(norm.has_scale ? inputs[1] : Tensor()),
        rstd(inputs[norm.has_scale ? 2 : 1]),
        mean(norm.centred ? inputs[norm.has_scale ? 3 : 2] : Tensor()),
        cotangent(inputs.back()) {}
  Tensor x, scale, rstd, mean, cotangent;
};

double flops_norm(const Graph& graph, const Node& node) {
  return 6.0 * static_cast<double>(graph.type(node.inputs[0]).elements());
}

// Scale and bias have the normalised axis alone, and one dtype.
void check_weights(const InferContext& context, size_t begin, size_t end, const Axis& axis) {
  for (size_t i = begin; i < end; ++i) {
    check_same_axes(context, i, {axis});
    if (context.inputs[i].dtype != context.inputs[begin].dtype) {
      refuse(context, fmt::format("{} is {}, {} is {}; cast one", context.names[begin],
                                  dtype_name(context.inputs[begin].dtype), context.names[i],
                                  dtype_name(context.inputs[i].dtype)));
    }
  }
}

std::vector<Type> infer_norm_grad(const InferContext& context) {
  const NormAttributes norm(context.attributes);
  refuse_partial(context);
  check_floating(context);
  const Type& x = context.inputs[0];
  check_weights(context, 1, norm.has_scale ? 2 : 1, unsplit_last_axis_of(context, 0, norm.axis));
  check_same_axes(context, context.inputs.size() - 1, x.axes);
  std::vector<Type> types = {x};
  if (norm.has_scale) {
    types.push_back(sum_to_axis_type(context, x, norm.axis, context.inputs[1].dtype));
    if (norm.has_bias) types.push_back(types.back());
  }
  return types;
}

std::vector<Tensor> plain_norm_grad(const Node& node, std::span<const Tensor> inputs) {
  const NormAttributes norm(node.attributes);
  const GradOperands operands(norm, inputs);
  Tensor normalised = widened(operands.x);
  if (norm.centred) normalised = normalised - operands.mean;
  normalised = normalised * operands.rstd;
  const Tensor cotangent = widened(operands.cotangent);
  const Tensor scaled = norm.has_scale ? cotangent * widened(operands.scale) : cotangent;

  Tensor dx = scaled - normalised * reduce_mean(scaled * normalised, norm.axis);
  if (norm.centred) dx = dx - reduce_mean(scaled, norm.axis);
  std::vector<Tensor> results = {as_dtype(dx * operands.rstd, operands.x.dtype())};
  if (norm.has_scale) {
    results.push_back(
        as_dtype(sum_to_axis(cotangent * normalised, norm.axis), operands.scale.dtype()));
    if (norm.has_bias)
      results.push_back(as_dtype(sum_to_axis(cotangent, norm.axis), operands.scale.dtype()));
  }
  return results;
}

double flops_norm_grad(const Graph& graph, const Node& node) {
  return 12.0 * static_cast<double>(graph.type(node.inputs[0]).elements());
}

constexpr OpDef norm_grad(std::string_view name) {
  return {.name = name,
          .op_class = OpClass::kReduction,
          .infer = infer_norm_grad,
          .decomposition = plain_norm_grad,
          .flops = flops_norm_grad};
}
std::vector<Type> infer_norm(const InferContext& context) {
  const NormAttributes norm(context.attributes);
  refuse_partial(context);
  check_floating(context);
  const Type& x = context.inputs[0];
  check_weights(context, 1, context.inputs.size(), unsplit_last_axis_of(context, 0, norm.axis));
  const Type statistic = without_axis(x, norm.axis, wide_dtype(x.dtype));
  if (norm.centred) return {x, statistic, statistic};
  return {x, statistic};
}

// A mean over a split axis is a pending sum; nothing happens to one that is not.
Tensor unsplit(const Tensor& x) {
  Type type = x.type();
  type.partial = {};
  return reshard(x, type);
}

// In primitive ops; the normalised axis may be split.
std::vector<Tensor> normalised(const NormAttributes& norm, std::span<const Tensor> inputs) {
  Tensor x = widened(inputs[0]);
  Tensor mean;
  if (norm.centred) {
    mean = unsplit(reduce_mean(x, norm.axis));
    x = x - mean;
  }
  const Tensor rstd = rsqrt(unsplit(reduce_mean(square(x), norm.axis)) + norm.epsilon);
  Tensor y = x * rstd;
  if (norm.has_scale) y = y * widened(inputs[1]);
  if (norm.has_bias) y = y + widened(inputs[2]);
  std::vector<Tensor> results = {as_dtype(y, inputs[0].dtype()), rstd};
  if (norm.centred) results.push_back(mean);
  return results;
}

std::vector<Tensor> plain_norm(const Node& node, std::span<const Tensor> inputs) {
  return normalised(NormAttributes(node.attributes), inputs);
}

std::vector<Tensor> vjp_norm(const VjpContext& context) {
  const NormAttributes norm(context.node.attributes);
  std::vector<Tensor> operands = {context.inputs[0]};
  if (norm.has_scale) operands.push_back(context.inputs[1]);
  operands.insert(operands.end(), context.outputs.begin() + 1, context.outputs.end());
  operands.push_back(context.cotangents[0]);
  return trace_node(norm.centred ? kLayerNormGradOp : kRmsNormGradOp, operands,
                    context.node.attributes, context.node.site);
}

constexpr OpDef norm_op(std::string_view name) {
  return {.name = name,
          .op_class = OpClass::kReduction,
          .infer = infer_norm,
          .vjp = vjp_norm,
          .decomposition = plain_norm,
          .flops = flops_norm};
}
// Scale and bias lie as the axis they multiply does.
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
  if (bias && !scale) fail("{}: a bias needs a scale beside it", op.name);
  std::vector<Tensor> operands = {axis_last(x, axis)};
  if (scale) operands.push_back(scale);
  if (bias) operands.push_back(bias);
  const Attributes attributes = {{"axis", std::string(axis)},
                                 {"epsilon", epsilon},
                                 {"centred", int64_t{&op == &kLayerNormOp}},
                                 {"scale", int64_t{scale.valid()}},
                                 {"bias", int64_t{bias.valid()}}};
  if (x.tensor.has(axis) && !x.tensor.type().axis(axis).split.empty()) {
    // Only the statistics cross devices, and they serve the caller's line.
    const SiteScope site(x.site);
    check_split_alike(op, operands, axis, x.site);
    return in_order_of(normalised(NormAttributes(attributes), operands).front(), x.tensor.type());
  }
  const Tensor y = trace_op(op, operands, attributes, x.site);
  return in_order_of({y, x.site}, x.tensor.type());
}

}  // namespace

const OpDef kRmsNormGradOp = norm_grad("rms_norm_grad");
const OpDef kLayerNormGradOp = norm_grad("layer_norm_grad");
const OpDef kRmsNormOp = norm_op("rms_norm");
const OpDef kLayerNormOp = norm_op("layer_norm");
static const OpRegistrar kRegisterNorm{&kRmsNormGradOp, &kLayerNormGradOp, &kRmsNormOp,
                                       &kLayerNormOp};

Tensor rms_norm(Operand x, const Tensor& scale, std::string_view axis, double epsilon) {
  return trace_norm(kRmsNormOp, x, scale, {}, axis, epsilon);
}

Tensor layer_norm(Operand x, const Tensor& scale, const Tensor& bias, std::string_view axis,
                  double epsilon) {
  return trace_norm(kLayerNormOp, x, scale, bias, axis, epsilon);
}

}  // namespace tessera
