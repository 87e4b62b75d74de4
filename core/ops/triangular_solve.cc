// SPDX-License-Identifier: Apache-2.0
#include "core/ops/triangular_solve.h"

#include <string>
#include <vector>

#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

constexpr AttributeName<std::string> kRow{"row"}, kColumn{"col"};
constexpr AttributeName<bool> kUpper{"upper"}, kUnitDiagonal{"unit_diagonal"};

struct SolveAttributes {
  explicit SolveAttributes(const Attributes& attributes)
      : row(attributes.get(kRow)),
        col(attributes.get(kColumn)),
        options{attributes.get(kUpper), attributes.get(kUnitDiagonal)} {}

  const std::string &row, &col;
  TriangularSolveOptions options;
};

Types infer_triangular_solve(const InferContext& context) {
  refuse_partial(context);
  check_floating(context);
  check_same_dtype(context);
  const SolveAttributes solve(context.attributes);
  const std::string &row = solve.row, &col = solve.col;
  const Axis &rows = unsplit_axis_of(context, 0, row), &cols = unsplit_axis_of(context, 0, col);
  if (rows.size != cols.size)
    refuse(context, "{} has {}={} and {}={}, expected a square matrix", context.names[0], row,
           rows.size, col, cols.size);
  unsplit_axis_of(context, 1, row);
  refuse_axis(context, 1, col);
  check_agreement(context, 0, 1);
  Type result = context.inputs[1];
  for (const Axis& axis : context.inputs[0].axes)
    if (axis.name != col) axis_of(context, 1, axis.name);
  for (Axis& axis : result.axes)
    if (axis.name == row) axis.name = col;
  check_mesh_axes_once(context, result);
  return {result};
}

// bool["row col"]: the elements below the diagonal, or above it, and those on it.
struct Triangle {
  explicit Triangle(const SolveAttributes& solve, const Tensor& a)
      : rows(iota(a.type().axis(solve.row))),
        cols(iota(a.type().axis(solve.col))),
        inside(solve.options.upper ? less(rows, cols) : less(cols, rows)),
        diagonal(equal(rows, cols)) {}

  // Returns the elements in one diagonal block of this size, a power of 2: the quotients are exact.
  Tensor same_block(int64_t size) const {
    const auto block_of = [&](const Tensor& position) {
      return cast(cast(position, DType::kF32) / static_cast<double>(size), DType::kI32);
    };
    return equal(block_of(rows), block_of(cols));
  }

  Tensor rows, cols, inside, diagonal;
};

// Inverts a["… row col"]; the axes stay. The inverse of the diagonal comes first; inverses of
// diagonal blocks then give those of blocks of twice the size, here for a lower triangle:
//   [A 0; B C]^-1 = [A^-1 0; -C^-1·B·A^-1 C^-1].
Tensor inverse(const Tensor& a, const SolveAttributes& solve) {
  const std::string &row = solve.row, &col = solve.col, inner = "triangular_solve";
  const Triangle triangle(solve, a);
  const Tensor one = constant(1.0, a.dtype());
  const Tensor diagonal = solve.options.unit_diagonal ? one : where(triangle.diagonal, a, one);
  Tensor blocks = where(triangle.diagonal, one / diagonal, constant(0.0, a.dtype()));
  for (int64_t size = 1; size < a.size(row); size *= 2) {
    const Tensor between =
        logical_and(triangle.same_block(2 * size), logical_not(triangle.same_block(size)));
    const Tensor beside = mask(a, logical_and(triangle.inside, between));
    const Tensor product = einsum(blocks, rename(rename(beside, col, inner), row, col), over(col));
    blocks = blocks - einsum(product, rename(blocks, row, inner), over(inner));
  }
  return blocks;
}

Tensors decompose_triangular_solve(const Node& node, std::span<const Tensor> inputs) {
  const SolveAttributes solve(node.attributes);
  const Tensor b = rename(widened(inputs[1]), solve.row, solve.col);
  const Tensor x = einsum(inverse(widened(inputs[0]), solve), b, over(solve.col));
  const Tensor ordered = in_order_of(rename(x, solve.row, solve.col), b.type());
  return {as_dtype(ordered, inputs[1].dtype())};
}

// With b's cotangent db = a^-T·dx, the cotangent of a is -db·x^T in its triangle.
Tensors triangular_solve_vjp(const VjpContext& c) {
  const SolveAttributes solve(c.node.attributes);
  const Tensor &a = c.inputs[0], &x = c.outputs[0];
  const TriangularSolveOptions transposed = {.upper = !solve.options.upper,
                                             .unit_diagonal = solve.options.unit_diagonal};
  const Tensor db = triangular_solve(a, c.cotangents[0], solve.col, solve.row, transposed);
  const std::vector<std::string> summed = names_beside(db.type(), a.type());
  const Tensor da =
      trace_op(kEinsumOp, {db, x}, {{key::kContracted, summed}, {key::kOutput, a.type().names()}},
               c.node.site);
  const Triangle triangle(solve, a);
  const Tensor read = solve.options.unit_diagonal ? triangle.inside
                                                  : logical_or(triangle.inside, triangle.diagonal);
  return {neg(mask(da, read)), db};
}

// Counts substitution: a product and a sum with half of the matrix.
double triangular_solve_flops(const Graph& graph, const Node& node) {
  const int64_t size = graph.type(node.inputs[0]).axis(SolveAttributes(node.attributes).row).size;
  return static_cast<double>(graph.type(node.outputs[0]).elements() * size);
}

}  // namespace

const Op kTriangularSolveOp{{.name = "triangular_solve",
                             .op_class = OpClass::kContraction,
                             .infer = infer_triangular_solve,
                             .vjp = triangular_solve_vjp,
                             .decomposition = decompose_triangular_solve,
                             .flops = triangular_solve_flops}};

Tensor triangular_solve(Operand a, Operand b, std::string_view row, std::string_view col,
                        const TriangularSolveOptions& options) {
  return trace_op(kTriangularSolveOp, {a.tensor, b.tensor},
                  {{kRow, row},
                   {kColumn, col},
                   {kUpper, options.upper},
                   {kUnitDiagonal, options.unit_diagonal}},
                  a.site);
}

}  // namespace tessera
