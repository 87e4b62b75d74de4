// SPDX-License-Identifier: Apache-2.0
#include "core/ops/optimizer.h"

#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

constexpr AttributeName<double> kBeta1{"beta1"}, kBeta2{"beta2"}, kEpsilonRoot{"epsilon_root"};
constexpr AttributeName<bool> kBiasCorrectedDecay{"bias_corrected_decay"};

using enum AdamOperand::Number;

Types infer_adam(const InferContext& context) {
  refuse_partial(context);
  const Type& parameter = context.inputs[kParameter];
  for (size_t i = kParameter; i <= kGradient; ++i) {
    const bool moment = i == kFirst || i == kSecond;
    moment ? check_floating_operand(context, i) : check_dtype(context, i, DType::kF32);
    check_same_axes(context, i, parameter.axes);
  }
  for (size_t i = kRate; i <= kApply; ++i) {
    check_dtype(context, i, i == kApply ? DType::kBool : DType::kF32);
    check_same_axes(context, i, {});
  }
  return {parameter, context.inputs[kFirst], context.inputs[kSecond]};
}

// Returns a moment as the node stores it: `old` unless `apply`. The noise is that of
// stochastic_round().
Tensor stored_moment(const Node& node, const Tensor& next, const Tensor& old, const Tensor& apply,
                     const Tensor& count, NoiseHalf half) {
  if (old.dtype() == DType::kF32) return where(apply, next, old);
  const Tensor value = where(apply, next, widened(old));
  if (!rounds_stochastically(node)) return cast(value, old.dtype());
  Attributes attributes = node.attributes;
  attributes.set(key::kHalf, half);
  return trace_op(kStochasticRoundOp, {value, count}, attributes, node.site);
}

// Return β^count, and the bias-corrected decay (Shazeer and Stern, 2018, §7.1).
Tensor power(double base, const Tensor& exponent) {
  return pow(constant(base, DType::kF32), exponent);
}
Tensor corrected_decay(double beta, const Tensor& count) {
  return beta * (1.0 - power(beta, count)) / (1.0 - power(beta, count + 1.0));
}

Tensors decompose_adam(const Node& node, std::span<const Tensor> inputs) {
  const auto [beta1, beta2, epsilon, epsilon_root, weight_decay, corrected, rounding] =
      adam_options(node.attributes);
  const Tensor& count = inputs[kCount];
  const Tensor gradient = inputs[kGradient] * inputs[kScale];

  const Tensor decay1 = corrected ? corrected_decay(beta1, count) : constant(beta1, DType::kF32);
  const Tensor decay2 = corrected ? corrected_decay(beta2, count) : constant(beta2, DType::kF32);
  const Tensor first = widened(inputs[kFirst]) * decay1 + gradient * (1.0 - decay1);
  const Tensor second = widened(inputs[kSecond]) * decay2 + square(gradient) * (1.0 - decay2);
  Tensor mean = first, variance = second;
  if (!corrected) {
    mean = first / (1.0 - power(beta1, count + 1.0));
    variance = second / (1.0 - power(beta2, count + 1.0));
  }
  const Tensor deviation = sqrt(variance + epsilon_root);
  const Tensor update = mean / (deviation + epsilon) + inputs[kParameter] * weight_decay;
  const Tensor parameter = inputs[kParameter] - update * inputs[kRate];
  return {where(inputs[kApply], parameter, inputs[kParameter]),
          stored_moment(node, first, inputs[kFirst], inputs[kApply], count, NoiseHalf::kLow),
          stored_moment(node, second, inputs[kSecond], inputs[kApply], count, NoiseHalf::kHigh)};
}

Types infer_squared_norm(const InferContext& context) {
  refuse_partial(context);
  const std::vector<std::string> split = split_of(context.mesh, context.inputs[0]);
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    check_floating_operand(context, i);
    const std::vector<std::string> own = split_of(context.mesh, context.inputs[i]);
    if (own != split)
      refuse(context, "{} is split over [{}] and {} over [{}]; expected the same mesh axes",
             context.names[0], joined(split), context.names[i], joined(own));
  }
  Type type = make_type(DType::kF32, {});
  if (!split.empty()) type.partial = {PartialKind::kSum, split};
  return {type};
}

Tensors decompose_squared_norm(const Node&, std::span<const Tensor> inputs) {
  Tensor total;
  for (const Tensor& x : inputs) {
    const Tensor sum = reduce_sum(square(cast(x, DType::kF32)));
    total = total ? total + sum : sum;
  }
  return {total};
}

Tensors squared_norm_vjp(const VjpContext& c) {
  Tensors cotangents;
  for (const Tensor& x : c.inputs)
    cotangents.push_back(cast(cast(x, DType::kF32) * (c.cotangents[0] * 2.0), x.dtype()));
  return cotangents;
}

double squared_norm_flops(const Graph& graph, const Node& node) {
  double elements = 0.0;
  for (const ValueId x : node.inputs) elements += static_cast<double>(graph.type(x).elements());
  return 2.0 * elements;
}

}  // namespace

const Op kAdamUpdateOp{{.name = "adam_update",
                        .infer = infer_adam,
                        .decomposition = decompose_adam,
                        .flops = flops_per_element<14>,
                        .anchor = ShardAnchor::kFirstOperand}};

const Op kSquaredNormOp{{.name = "squared_norm",
                         .op_class = OpClass::kReduction,
                         .infer = infer_squared_norm,
                         .vjp = squared_norm_vjp,
                         .decomposition = decompose_squared_norm,
                         .flops = squared_norm_flops}};
Tensor squared_norm(const Tensors& tensors, SourceSite site) {
  return trace_node(kSquaredNormOp, tensors, {}, site)[0];
}

std::vector<std::string> split_of(const Mesh& mesh, const Type& type) {
  std::vector<std::string> split;
  for (const Axis& axis : type.axes) split = mesh_union(mesh, split, axis.split);
  return split;
}

AdamOptions adam_options(const Attributes& attributes) {
  return {.beta1 = attributes.get(kBeta1),
          .beta2 = attributes.get(kBeta2),
          .epsilon = attributes.get(key::kEpsilon),
          .epsilon_root = attributes.get(kEpsilonRoot),
          .weight_decay = attributes.get(key::kWeightDecay),
          .bias_corrected_decay = attributes.get(kBiasCorrectedDecay)};
}

AdamState adam_update(const AdamState& state, Operand gradient, Operand learning_rate,
                      Operand count, Operand gradient_scale, Operand apply,
                      const AdamOptions& options) {
  Attributes attributes = {{kBeta1, options.beta1},
                           {kBeta2, options.beta2},
                           {key::kEpsilon, options.epsilon},
                           {kEpsilonRoot, options.epsilon_root},
                           {key::kWeightDecay, options.weight_decay},
                           {kBiasCorrectedDecay, options.bias_corrected_decay}};
  const bool rounds =
      state.first_moment.dtype() != DType::kF32 || state.second_moment.dtype() != DType::kF32;
  if (rounds && options.rounding == Rounding::kStochastic) {
    const Attributes noise = noise_attributes(state.parameter.type(), "");
    for (const auto& entry : noise.entries()) attributes.set(entry);
  }
  const Tensors next =
      trace_node(kAdamUpdateOp,
                 {state.parameter, state.first_moment, state.second_moment, gradient.tensor,
                  learning_rate.tensor, count.tensor, gradient_scale.tensor, apply.tensor},
                 attributes, gradient.site);
  return {next[0], next[1], next[2]};
}

}  // namespace tessera
