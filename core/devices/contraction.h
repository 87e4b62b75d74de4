// SPDX-License-Identifier: Apache-2.0
// Einsum as a batch of matrix products, batch × (m×k · k×n), for the kernels of every device and
// for prices. Operands whose axes do not form a matrix in memory are packed into one first (the
// TTGT scheme: transpose, GEMM, transpose).
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/dtype.h"
#include "core/devices/iteration_space.h"
#include "core/graph/graph.h"

namespace tessera {

// The storage of a matrix: row-major with `leading` elements from row to row, or transposed, with
// `leading` from column to column.
struct MatrixLayout {
  int64_t leading = 0;
  bool transposed = false;
};

// A is m×k, B is k×n, C is m×n and row-major. Accumulates in f32.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  MatrixLayout a, b;
  int64_t c_leading = 0;
  DType input = DType::kF32;   // f32 or bf16.
  DType output = DType::kF32;  // f32, or bf16 if the input is.
  // Continues the sums that are in C (f32, with A stored transposed). The bits are those of one
  // product if all but the last have a multiple of kWholeDepth (cpu/gemm/gemm.h) as k.
  bool adds = false;
};
// A copy of an operand to the order batch, rows, columns (or of the result from that order).
struct Packing {
  IterationSpace space;  // Operand 0 is read, operand 1 is written.
  int64_t elements = 0;
};

struct Contraction {
  // Whether the second operand of the einsum is A, because the result is stored transposed.
  bool swapped = false;
  GemmShape shape;  // Shape of one product of the batch.
  // Batch dimensions, outermost first; operands 0, 1, 2 are A, B, C.
  IterationSpace batch;
  std::optional<Packing> pack_a, pack_b, pack_c;
  int64_t batches() const { return batch.elements(); }
};

// Divides the axes of an einsum into batch, m, n and k, and finds the layouts of its operands.
Contraction make_contraction(const Graph& graph, const Node& node);

}  // namespace tessera
