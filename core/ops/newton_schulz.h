// SPDX-License-Identifier: Apache-2.0
// The Newton-Schulz iteration, which brings all singular values of a matrix near 1 by products
// alone: the update of Muon (Jordan et al., 2024).
#pragma once

#include <array>
#include <cstdint>

#include "core/graph/graph.h"
#include "core/graph/op.h"
#include "core/ops/matrices.h"

namespace tessera {

struct NewtonSchulzOptions {
  int64_t steps = 5;  // 1 or more.
  // a, b and c of X <- aX + (bA + cA²)X with A = XX^T.
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};
  double epsilon = 1e-7;  // The least norm by which a matrix is divided first.
};

// x / max(|x|, epsilon) for each matrix of x, with the Frobenius norm, and then the steps. Which
// axes are rows is all the same: the result of a transposed matrix is transposed. Products are in
// the dtype of x, polynomials and norms in f32 (f64 in f64).
//
// Errors: a partial operand; axes of the matrices that are split, while others may be.
Tensor newton_schulz(Operand x, const MatrixAxes& axes, const NewtonSchulzOptions& options = {});

extern const Op kNewtonSchulzOp;

}  // namespace tessera
