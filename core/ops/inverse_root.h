// SPDX-License-Identifier: Apache-2.0
// Inverse roots of symmetric matrices by products alone: what Shampoo multiplies gradients by.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

// What is added to the diagonal: `epsilon`, for matrices of zeros, and then `damping` times the
// largest sum of a row's absolute values, which bounds the eigenvalues.
struct InverseRootOptions {
  int64_t root = 4;       // 2 or 4.
  double damping = 1e-6;  // Below this, rounding errors of f32 may exceed the least eigenvalue.
  double epsilon = 1e-30;
};

// a^(-1/root), so damped, for each matrix of a["… row column"], symmetric and positive
// semidefinite, by coupled Newton iterations (Guo and Higham, 2006; Anil et al., 2020): as many as
// the least eigenvalue that the damping leaves needs for the precision of f64, 21 for a fourth root
// with a damping of 1e-6. Computed in f32 (f64 in f64), with an error in proportion to the
// condition number. It has no gradient.
//
// Errors: row and column of different sizes, or split; a partial operand.
Tensor inverse_root(Operand a, std::string_view row, std::string_view column,
                    const InverseRootOptions& options = {});

extern const Op kInverseRootOp;

}  // namespace tessera
