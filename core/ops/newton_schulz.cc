// SPDX-License-Identifier: Apache-2.0
#include "core/ops/newton_schulz.h"

#include <algorithm>
#include <cmath>

#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

constexpr AttributeName<std::vector<std::string>> kRowAxes{"rows"}, kColumnAxes{"columns"};
constexpr AttributeName<int64_t> kIterations{"steps"};
constexpr AttributeName<double> kLinear{"a"}, kCubic{"b"}, kQuintic{"c"};
// The second axis of a Gram matrix, and the one over which it is squared.
constexpr std::string_view kGramAxis = "newton_schulz", kSquareAxis = "newton_schulz_square";

void check_options(const InferContext& context) {
  const Attributes& attributes = context.attributes;
  if (attributes.get(kIterations) < 1)
    refuse(context, "steps is {}, expected 1 or more", attributes.get(kIterations));
  for (const double each :
       {attributes.get(kLinear), attributes.get(kCubic), attributes.get(kQuintic)})
    if (!std::isfinite(each))
      refuse(context, "a coefficient is {}, expected a finite number", plain_nan(each));
  if (!(attributes.get(key::kEpsilon) > 0.0))
    refuse(context, "epsilon is {}, expected a positive number",
           plain_nan(attributes.get(key::kEpsilon)));
}

Types infer_newton_schulz(const InferContext& context) {
  refuse_partial(context);
  check_floating(context);
  std::vector<std::string> names = context.attributes.get(kRowAxes);
  const std::vector<std::string>& columns = context.attributes.get(kColumnAxes);
  if (names.empty() || columns.empty())
    refuse(context, "a matrix of {} has no {}, expected one axis or more", context.names[0],
           names.empty() ? "rows" : "columns");
  names.insert(names.end(), columns.begin(), columns.end());
  for (const std::string& name : names) {
    unsplit_axis_of(context, 0, name);
    if (std::ranges::count(names, name) > 1)
      refuse(context, "{} is given twice; an axis is of rows or of columns", name);
  }
  check_options(context);
  return {context.inputs[0]};
}

Tensor plus_product(const Tensor& x, double factor, const Tensor& product) {
  return as_dtype(widened(x) * factor + widened(product), x.dtype());
}

// One step. Gram matrices are over the shorter axis.
Tensor iterated(const Tensor& x, const Matrices& matrices, const Attributes& attributes) {
  const std::string &row = matrices.row(), &column = matrices.column();
  const bool by_rows = x.size(row) <= x.size(column);
  const std::string &shorter = by_rows ? row : column, &longer = by_rows ? column : row;
  const Tensor gram = einsum(x, rename(x, shorter, kGramAxis), over(longer));
  const Tensor square = rename(einsum(gram, rename(gram, shorter, kSquareAxis), over(kGramAxis)),
                               kSquareAxis, kGramAxis);
  const Tensor polynomial =
      plus_product(gram, attributes.get(kCubic), widened(square) * attributes.get(kQuintic));
  const Tensor renamed = rename(x, shorter, kGramAxis);
  const Tensor product = by_rows ? einsum(polynomial, renamed, over(kGramAxis))
                                 : einsum(renamed, polynomial, over(kGramAxis));
  return plus_product(x, attributes.get(kLinear), product);
}

Tensors decompose_newton_schulz(const Node& node, std::span<const Tensor> inputs) {
  const Matrices matrices(inputs[0].type(),
                          {node.attributes.get(kRowAxes), node.attributes.get(kColumnAxes)});
  const Tensor wide = widened(matrices.of(inputs[0]));
  const Tensor norm = sqrt(reduce_sum(square(wide), joined({matrices.row(), matrices.column()})));
  const Tensor least = constant(node.attributes.get(key::kEpsilon), norm.dtype());
  Tensor x = as_dtype(wide / maximum(norm, least), inputs[0].dtype());
  for (int64_t step = 0; step < node.attributes.get(kIterations); ++step)
    x = iterated(x, matrices, node.attributes);
  return {matrices.stored(x)};
}

double newton_schulz_flops(const Graph& graph, const Node& node) {
  const Type& type = graph.type(node.inputs[0]);
  const auto size_of = [&](const std::vector<std::string>& names) {
    double size = 1.0;
    for (const std::string& name : names) size *= static_cast<double>(type.axis(name).size);
    return size;
  };
  const auto [shorter, longer] = std::minmax(
      {size_of(node.attributes.get(kRowAxes)), size_of(node.attributes.get(kColumnAxes))});
  const double each_step = shorter * shorter * (4.0 * longer + 2.0 * shorter);
  return static_cast<double>(node.attributes.get(kIterations)) * each_step *
         static_cast<double>(type.elements()) / (shorter * longer);
}

}  // namespace

const Op kNewtonSchulzOp{{.name = "newton_schulz",
                          .op_class = OpClass::kContraction,
                          .infer = infer_newton_schulz,
                          .decomposition = decompose_newton_schulz,
                          .flops = newton_schulz_flops}};

Tensor newton_schulz(Operand x, const MatrixAxes& axes, const NewtonSchulzOptions& options) {
  const auto& [a, b, c] = options.coefficients;
  return trace_op(kNewtonSchulzOp, {x.tensor},
                  {{kRowAxes, axes.rows},
                   {kColumnAxes, axes.columns},
                   {kIterations, options.steps},
                   {kLinear, a},
                   {kCubic, b},
                   {kQuintic, c},
                   {key::kEpsilon, options.epsilon}},
                  x.site);
}

}  // namespace tessera
