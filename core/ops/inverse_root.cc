// SPDX-License-Identifier: Apache-2.0
#include "core/ops/inverse_root.h"

#include <cmath>
#include <string>

#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

constexpr AttributeName<std::string> kRowAxis{"row"}, kColumnAxis{"column"};
constexpr AttributeName<int64_t> kRoot{"root"};
constexpr AttributeName<double> kDamping{"damping"};
constexpr std::string_view kInnerAxis = "inverse_root";  // Over which products are summed.

Types infer_inverse_root(const InferContext& context) {
  refuse_partial(context);
  check_floating(context);
  const Attributes& attributes = context.attributes;
  const Axis& row = unsplit_axis_of(context, 0, attributes.get(kRowAxis));
  const Axis& column = unsplit_axis_of(context, 0, attributes.get(kColumnAxis));
  if (row.size != column.size || row.name == column.name)
    refuse(context, "matrices are {}={} by {}={}, expected two axes of one size", row.name,
           row.size, column.name, column.size);
  if (const int64_t root = attributes.get(kRoot); root != 2 && root != 4)
    refuse(context, "root is {}, expected 2 or 4", root);
  for (const double each : {attributes.get(kDamping), attributes.get(key::kEpsilon)})
    if (!(each > 0.0) || !std::isfinite(each))
      refuse(context, "damping or epsilon is {}, expected a positive number", plain_nan(each));
  return infer_same(context);
}

// The iterations after which the least eigenvalue that the damping leaves is 1.
int64_t iterations_of(const Attributes& attributes) {
  const auto root = static_cast<double>(attributes.get(kRoot));
  const double damping = attributes.get(kDamping);
  double least = damping / (1.0 + damping) * (1.0 + root) / 2.0;
  int64_t iterations = 0;
  for (; 1.0 - least > 1e-15; ++iterations) least *= std::pow(1.0 + (1.0 - least) / root, root);
  return iterations;
}

// M starts with eigenvalues in (0, (1 + root)/2], and X with I. With T = ((1 + root)·I - M)/root,
// X <- X·T and M <- T^root·M keep X^-root·M, and M tends to I.
Tensors decompose_inverse_root(const Node& node, std::span<const Tensor> inputs) {
  const Attributes& attributes = node.attributes;
  const std::string &row = attributes.get(kRowAxis), &column = attributes.get(kColumnAxis);
  const auto root = static_cast<double>(attributes.get(kRoot));
  const Tensor a = widened(inputs[0]);
  const Tensor identity = one_hot(iota(a.type().axis(row)), a.type().axis(column), a.dtype());
  const auto product = [&](const Tensor& x, const Tensor& y) {
    const Tensor xy =
        einsum(rename(x, column, kInnerAxis), rename(y, row, kInnerAxis), over(kInnerAxis));
    return in_order_of(xy, a.type());
  };
  const double damping = attributes.get(kDamping), epsilon = attributes.get(key::kEpsilon);
  const Tensor bound = reduce_max(reduce_sum(abs(a), column), row) + epsilon;
  const Tensor scale = constant(0.5 * (1.0 + root) / (1.0 + damping), a.dtype()) / bound;
  const RepeatResult loop = repeat(
      "iterations", iterations_of(attributes),
      {zeros(a.type()) + identity, (a + (bound * damping + epsilon) * identity) * scale}, {},
      [&](const Tensor&, const Tensors& carries, const Tensors&) -> RepeatBody {
        const Tensor &x = carries[0], &m = carries[1];
        const Tensor t = (identity * (1.0 + root) - m) / root;
        const Tensor squared = product(t, t);
        return {{product(x, t), product(root == 4.0 ? product(squared, squared) : squared, m)}, {}};
      });
  const Tensor factor = root == 4.0 ? sqrt(sqrt(scale)) : sqrt(scale);
  return {as_dtype(loop.carries[0] * factor, inputs[0].dtype())};
}

double inverse_root_flops(const Graph& graph, const Node& node) {
  const Type& type = graph.type(node.inputs[0]);
  const double products = node.attributes.get(kRoot) == 4 ? 4.0 : 3.0;
  return static_cast<double>(iterations_of(node.attributes)) * products * 2.0 *
         static_cast<double>(type.elements() * type.axis(node.attributes.get(kRowAxis)).size);
}

}  // namespace

const Op kInverseRootOp{{.name = "inverse_root",
                         .op_class = OpClass::kContraction,
                         .infer = infer_inverse_root,
                         .decomposition = decompose_inverse_root,
                         .flops = inverse_root_flops}};

Tensor inverse_root(Operand a, std::string_view row, std::string_view column,
                    const InverseRootOptions& options) {
  return trace_op(kInverseRootOp, {a.tensor},
                  {{kRowAxis, std::string(row)},
                   {kColumnAxis, std::string(column)},
                   {kRoot, options.root},
                   {kDamping, options.damping},
                   {key::kEpsilon, options.epsilon}},
                  a.site);
}

}  // namespace tessera
