// SPDX-License-Identifier: Apache-2.0
// Systems of linear equations with a triangular matrix.
#pragma once

#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

struct TriangularSolveOptions {
  bool upper = false;          // Whether the upper triangle is read; the other is not.
  bool unit_diagonal = false;  // Ones on the diagonal, which is not read.
};

// a["batch row col"], b["batch row rhs"] -> x["batch col rhs"] with einsum(a, x, over("col")) = b,
// where col takes the place of row. Axes of `a` besides these two are batch axes, which b has too;
// further axes of b may be any and in any place. Computed in f32 (f64 in f64), by the inverse
// of `a`, which is computed block by block from the diagonal. A zero on the diagonal gives
// infinities.
//
// Errors: row and col of different sizes, or split; partial operands.
Tensor triangular_solve(Operand a, Operand b, std::string_view row, std::string_view col,
                        const TriangularSolveOptions& options = {});

extern const Op kTriangularSolveOp;

}  // namespace tessera
