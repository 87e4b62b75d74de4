// SPDX-License-Identifier: Apache-2.0
#include "core/ops/softmax.h"

#include <string>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/composite.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"

namespace tessera {
namespace {

const std::string& axis_of(const Node& node) { return node.attributes.get<std::string>("axis"); }

std::vector<Type> infer_softmax(const InferContext& context) {
  refuse_partial(context);
  check_floating(context);
  check_same_dtype(context);
  unsplit_last_axis_of(context, 0, context.attributes.get<std::string>("axis"));
  for (size_t i = 1; i < context.inputs.size(); ++i)
    check_same_axes(context, i, context.inputs[0].axes);
  return {context.inputs[0]};
}

double flops_softmax(const Graph& graph, const Node& node) {
  return 5.0 * static_cast<double>(graph.type(node.inputs[0]).elements());
}

// Operands: the softmax and its cotangent.
std::vector<Tensor> plain_softmax_grad(const Node& node, std::span<const Tensor> inputs) {
  const Tensor y = widened(inputs[0]);
  const Tensor product = y * widened(inputs[1]);
  const Tensor dx = product - y * reduce_sum(product, axis_of(node));
  return {as_dtype(dx, inputs[0].dtype())};
}

std::vector<Tensor> plain_softmax(const Node& node, std::span<const Tensor> inputs) {
  const Tensor x = widened(inputs[0]);
  const Tensor exponential = exp(x - reduce_max(x, axis_of(node)));
  return {as_dtype(exponential / reduce_sum(exponential, axis_of(node)), inputs[0].dtype())};
}

std::vector<Tensor> vjp_softmax(const VjpContext& context) {
  return trace_node(kSoftmaxGradOp, {context.outputs[0], context.cotangents[0]},
                    context.node.attributes, context.node.site);
}

}  // namespace

const OpDef kSoftmaxGradOp{.name = "softmax_grad",
                           .op_class = OpClass::kReduction,
                           .infer = infer_softmax,
                           .decomposition = plain_softmax_grad,
                           .flops = flops_softmax};
const OpDef kSoftmaxOp{.name = "softmax",
                       .op_class = OpClass::kReduction,
                       .infer = infer_softmax,
                       .vjp = vjp_softmax,
                       .decomposition = plain_softmax,
                       .flops = flops_softmax};
static const OpRegistrar kRegisterSoftmax{&kSoftmaxGradOp, &kSoftmaxOp};

Tensor softmax(Operand x, std::string_view axis) {
  const Tensor y =
      trace_op(kSoftmaxOp, {axis_last(x, axis)}, {{"axis", std::string(axis)}}, x.site);
  return in_order_of({y, x.site}, x.tensor.type());
}

}  // namespace tessera
